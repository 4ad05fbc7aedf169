"""Starts a server that accepts tokens of an issuer, and uses it as an MCP client whose user logs in.

The issuer is in this program: it registers clients, logs everyone in, and signs tokens. The client is
the library's own: it is told the address of the server and nothing of the issuer.

    with_oauth.py COMMAND ARGUMENT...
"""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

REDIRECT = "http://localhost:1/callback"


class Issuer(ThreadingHTTPServer):
    """Requests are noted by path, and the resource that tokens were asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/realm"
        self.key = Ed25519PrivateKey.generate()
        self.asked: list[str] = []
        self.resources: set[str] = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def token(self) -> str:
        claims = {"iss": self.url, "aud": "woma", "sub": "ada", "exp": int(time.time()) + 600}
        return jwt.encode(claims, self.key, algorithm="EdDSA", headers={"kid": "one"})

    def keys(self) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": "one", "use": "sig"}]}

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }


class Handler(BaseHTTPRequestHandler):
    server: Issuer

    def reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.asked.append(url.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        match url.path:
            case "/.well-known/oauth-authorization-server/realm":
                self.reply(200, self.server.metadata())
            case "/realm/keys":
                self.reply(200, self.server.keys())
            case "/realm/authorize":
                self.server.resources.add(query.get("resource", ""))
                answer = urlencode({"code": "a-code", "state": query["state"]})
                self.reply(302, None, {"Location": f"{query['redirect_uri']}?{answer}"})
            case _:
                self.reply(404, None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append(self.path)
        match self.path:
            case "/realm/register":
                asked = json.loads(body)
                self.reply(201, {**asked, "client_id": "a-client"})
            case "/realm/token":
                form = {name: values[0] for name, values in parse_qs(body).items()}
                assert form["code"] == "a-code", form
                token = {"access_token": self.server.token(), "token_type": "Bearer"}
                self.reply(200, token)
            case _:
                self.reply(404, None)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Memory:
    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


async def use(url: str) -> None:
    answers: list[AuthorizationCodeResult] = []

    async def log_in(address: str) -> None:
        async with httpx2.AsyncClient() as browser:
            reply = await browser.get(address, follow_redirects=False)
        query = parse_qs(urlsplit(reply.headers["location"]).query)
        answers.append(AuthorizationCodeResult(code=query["code"][0], state=query["state"][0]))

    async def answered() -> AuthorizationCodeResult:
        return answers.pop()

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "test",
            "redirect_uris": [REDIRECT],
            "grant_types": ["authorization_code"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
    )
    login = OAuthClientProvider(url, metadata, Memory(), log_in, answered)
    async with httpx2.AsyncClient(auth=login, timeout=60) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            result = await client.call_tool("execute_code", {"code": "6 * 7"})
    assert result.structured_content and result.structured_content["result"] == 42, result


def main() -> None:
    issuer = Issuer()
    command = [*sys.argv[1:], "serve", "--port", "0"]
    variables = {"JWT_ISSUER": issuer.url, "JWT_AUDIENCE": "woma", "PRELOAD": "base"}
    server = subprocess.Popen(
        command, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        for line in server.stderr:
            if "listening on http://" in line:
                url = line.split("listening on ")[1].strip() + "/mcp"
                break
        else:
            raise AssertionError("the server did not start")
        threading.Thread(target=server.stderr.read, daemon=True).start()
        anyio.run(use, url)
        assert issuer.resources == {url}, issuer.resources
        for path in ["/realm/register", "/realm/authorize", "/realm/token", "/realm/keys"]:
            assert path in issuer.asked, (path, issuer.asked)
    finally:
        server.terminate()
        server.wait()


main()
