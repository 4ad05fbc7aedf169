# attack: predict random numbers: generators must not come out of the fork in a state known to all sessions
# must end: completed
import os, random, ssl, tempfile, uuid
import numpy
children = []
for _ in range(2):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, repr((ssl.RAND_bytes(16), os.urandom(16), uuid.uuid4().hex)).encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    children.append(os.read(reader, 4096))
    os.close(reader)
if not all(children) or children[0] == children[1]:
    print("BREACH: two processes drew the same numbers")
if random.getstate() == random.Random(0).getstate() or numpy.random.get_state()[1].tolist() == numpy.random.RandomState(0).get_state()[1].tolist():
    print("BREACH: a generator has a fixed seed")
with tempfile.NamedTemporaryFile() as one, tempfile.NamedTemporaryFile() as two:
    if one.name == two.name:
        print("BREACH: temporary names repeat")
print("held")
