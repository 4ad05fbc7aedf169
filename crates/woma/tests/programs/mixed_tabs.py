# program: code with tabs and spaces that have one reading
# habit: 45
# sees: even 2
# sees: Note:

def check(n):
    if n % 2 == 0:
	print('even', n)
    return n

for i in (1, 2):
    check(i)
