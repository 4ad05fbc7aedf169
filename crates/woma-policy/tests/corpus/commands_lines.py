"""profiles: open tiers tiers+all power-interpreter
Commands as notebooks write them."""
import math
!ls -l
files = !find .
!!pwd
%system id
%pip install x
%timeit 1 + 1
%matplotlib inline
math?
get_ipython().system("ls")
get_ipython().run_line_magic("sx", "ls")
if math:
    !echo $HOME
