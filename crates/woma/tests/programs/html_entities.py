# program: code with HTML entities
# habit: 45
# sees: small and not zero
# sees: Note:

x = 5
if x &lt; 10 and x &gt; 0:
    print("small and not zero")
