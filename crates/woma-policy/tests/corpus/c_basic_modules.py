"""profiles: open tiers tiers+all
Every module of the basic tier."""
import math, random, statistics, decimal, fractions, collections, itertools, functools, heapq
import bisect, string, textwrap, re, difflib, unicodedata, base64, binascii, hashlib, hmac, secrets
import json, csv, html.parser, xml.etree, urllib.parse, datetime, uuid, calendar, dataclasses, enum
import typing, time, operator, copy, cmath, html, configparser, abc, contextlib, types
import xml.etree.ElementTree
