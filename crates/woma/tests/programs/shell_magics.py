# program: use shell lines and a time magic
# habit: 2
# sees: notes.txt
# sees: Found 1 text file

!echo hello > notes.txt
!ls
files = !ls *.txt
print(f"Found {len(files)} text file")
