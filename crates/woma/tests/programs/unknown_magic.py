# program: use an unknown magic, which must not stop the program
# habit: 2
# sees: still here
# sees: no_such_magic

%load_ext autoreload
%no_such_magic 2
print("still here")
