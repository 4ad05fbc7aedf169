# program: call a function with a missing argument
# outcome: raised
# sees: TypeError: area() missing 1 required positional argument: 'height'

def area(width, height):
    return width * height

print(area(3))
