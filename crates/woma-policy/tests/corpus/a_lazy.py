"""profiles: open tiers tiers+all power-interpreter
The modules that system A loads on demand."""
import matplotlib.pyplot as plt
import seaborn as sns
import plotly.express as px
import plotly.graph_objects as go
from scipy import stats, optimize, interpolate
from sklearn.linear_model import LinearRegression
import statsmodels.api as sm
from openpyxl.styles import Font
from openpyxl.chart import BarChart
import xlsxwriter, pdfplumber
from reportlab.platypus import SimpleDocTemplate
from reportlab.pdfgen import canvas
import requests, tabulate, textwrap, string, struct, decimal, fractions, random, time, calendar
import pprint, dataclasses, pathlib, os, urllib, shutil, glob
from matplotlib.backends.backend_pdf import PdfPages
fig, ax = plt.subplots()
