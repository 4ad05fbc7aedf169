# attack: change the certificate authorities that programs trust, or find a key among them
# must end: completed
import os, re, subprocess
places = ["/opt/woma/trust/server.pem", "/opt/woma/trust/all.pem", "/etc/ssl/certs/ca-certificates.crt"]
places += [value for name, value in os.environ.items() if name.endswith(("CERT_FILE", "CA_BUNDLE", "CAINFO", "CA_CERTS"))]
try:
    import certifi
    places.append(certifi.where())
except ImportError:
    pass
for place in sorted(set(places)):
    try:
        with open(place, "rb") as shown:
            text = shown.read()
    except OSError:
        continue
    if re.search(rb"PRIVATE [K]EY", text):
        print("BREACH: a private key in", place)
    if not re.search(rb"BEGIN CERTIFICATE", text):
        print("BREACH: something else than certificates in", place, text[:40])
    for act in (
        lambda: open(place, "ab").close(),
        lambda: os.unlink(place),
        lambda: os.rename(place, place + ".old"),
        lambda: os.chmod(place, 0o666),
        lambda: os.truncate(place, 0),
        lambda: os.link(place, "/mnt/data/linked"),
        lambda: open(f"/proc/self/root{place}", "r+b").close(),
        lambda: subprocess.run(["umount", place], check=True, capture_output=True),
    ):
        try:
            act()
            print("BREACH: changed", place)
        except (OSError, subprocess.CalledProcessError):
            pass
print("held")
