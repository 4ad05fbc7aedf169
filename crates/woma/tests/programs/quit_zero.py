# program: end with quit(), in good order
# habit: 16
# sees: all done
# not: never

print("all done")
quit()
print("never")
