# attack: open the kernel's crypto interface, by which the shared page cache could be written (CVE-2026-31431)
# must end: completed
import socket
for kind, name in (("hash", "sha256"), ("skcipher", "cbc(aes)"), ("aead", "authencesn(hmac(sha256),cbc(aes))")):
    try:
        with socket.socket(38, socket.SOCK_SEQPACKET) as crypto:
            crypto.bind((kind, name))
            print("BREACH: crypto socket", kind, name)
    except OSError:
        pass
print("held")
