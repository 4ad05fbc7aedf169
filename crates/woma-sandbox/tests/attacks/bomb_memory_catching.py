# attack: catch the error every time, let go of nothing, and use the reserve that is kept for reports
# must end: raised or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
import mmap, time
blocks = []
end = time.monotonic() + 5
while time.monotonic() < end:
    try:
        block = mmap.mmap(-1, 1 << 20)
        block.write(b"x" * (1 << 20))
        blocks.append(block)
    except MemoryError:
        pass
if len(blocks) > 260:
    print("BREACH: holds", len(blocks), "MB")
raise SystemExit(1)
