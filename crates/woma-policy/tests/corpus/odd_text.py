"""profiles: open tiers tiers+all power-interpreter
Wide letters, tabs and blank lines before what is found."""
ünï, 日本 = 1, '日本'; import os
if ünï:
	print('é́', eval)
