# attack: unpack ten megabytes to ten gigabytes, in C, in one call
# must end: raised or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
import zlib
packer = zlib.compressobj(9, zlib.DEFLATED, -15)
chunk = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
zlib.decompressobj(-15).decompress(chunk * 10240)
