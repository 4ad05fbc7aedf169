# program: begin as a notebook does
# habit: 2
# pictures: 1
# not: Warning

%matplotlib inline
%config InlineBackend.figure_format = 'retina'
import matplotlib.pyplot as plt

plt.plot([1, 2, 4, 8])
plt.show()
