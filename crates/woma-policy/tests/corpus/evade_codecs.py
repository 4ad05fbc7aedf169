"""profiles: open tiers tiers+all power-interpreter
Code in other clothes."""
import codecs
import base64
exec(codecs.decode("vzcbeg bf", "rot13"))
eval(base64.b64decode("MQ=="))
eval(bytes([49]).decode())
(lambda: eval)()('1')
