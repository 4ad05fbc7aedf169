"""profiles: open tiers tiers+all power-interpreter
A binding in one function is none in another."""
def a():
    eval = print
    eval("1")
def b():
    eval("2")
def c(open):
    open("x")
def d():
    open("y")
[exec for exec in "ab"]
exec("z")
class C:
    compile = 1
    print(compile)
    def f(self):
        return compile
