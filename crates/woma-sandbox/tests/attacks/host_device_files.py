# attack: open the devices that have led to the host before: memory, disks, kvm, fuse, cuse, tun, loop
# must end: completed
import os
names = ["mem", "kmem", "port", "kmsg", "sda", "vda", "nvme0n1", "xvda", "dm-0", "loop0", "loop-control", "mapper/control", "fuse", "cuse", "kvm", "vhost-net",
         "vhost-vsock", "vsock", "net/tun", "uinput", "input/event0", "btrfs-control", "userfaultfd", "cpu/0/msr", "hpet", "rtc0", "snapshot", "tty0", "tty1",
         "console", "ttyS0", "watchdog", "nvidia0", "dri/card0", "udmabuf", "dma_heap/system", "hwrng", "autofs", "vfio/vfio", "ppp", "binder", "ashmem"]
for name in names:
    try:
        os.close(os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
        print("BREACH: opened /dev/" + name)
    except OSError:
        pass
print("held")
