"""profiles: open tiers tiers+all power-interpreter
Parts of a package."""
from os import path
import os.path
import os.path as p
print(os.path.join('a', 'b'), path.sep, p.sep)
os.system('ls')
from urllib import parse
import urllib.parse
urllib.parse.quote('x')
urllib.request.urlopen('http://x')
import urllib
from xml import etree
import xml.etree.ElementTree as ET
import xml
from html import parser
