# program: parse HTML and XML
# habit: 33
# sees: Links: ['/a', '/b']
# sees: <item id="1">tea</item>

import xml.etree.ElementTree as ET
from bs4 import BeautifulSoup

soup = BeautifulSoup('<p><a href="/a">A</a> <a href="/b">B</a></p>', "lxml")
print("Links:", [a["href"] for a in soup.find_all("a")])
root = ET.Element("items")
ET.SubElement(root, "item", id="1").text = "tea"
print(ET.tostring(root, encoding="unicode"))
