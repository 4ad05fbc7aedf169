# attack: have fifty threads want memory at once, so that all of them are held and nobody can be told
# must end: raised or out_of_memory
# limits: wall=10s memory=256m processes=64
# with: neighbour
import mmap, threading
blocks = []
def take():
    while True:
        block = mmap.mmap(-1, 1 << 20)
        block.write(b"x" * (1 << 20))
        blocks.append(block)
threads = [threading.Thread(target=take, daemon=True) for _ in range(50)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
