//! Every package of the default environment works in a fork of the full zygote, including thread
//! pools.

use std::time::Duration;

use libtest_mimic::Trial;
use woma_sandbox::{Event, Limits, Spec, Tier};

use crate::harness::{RunResult, sandbox, spec};
use crate::{complete, describe, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let package_trial = |(name, code, shows): &'static (&str, &str, Option<&str>)| {
        trial(&format!("package {name}"), move || works(code, *shows))
    };
    PACKAGES.iter().map(package_trial).collect()
}

async fn works(code: &str, shows: Option<&str>) {
    let sandbox = sandbox().await;
    sandbox.ready(Tier::Full).await.unwrap();
    let limits = Limits { wall: Duration::from_secs(30), ..Limits::default() };
    let wanted = Spec { tier: Some(Tier::Full), ..spec(limits) };
    let mut cell = sandbox.open(&wanted).await.unwrap();
    let result = complete(&mut cell, code).await;
    if let Some(media_type) = shows {
        let shown = media_types(&result);
        assert!(shown.iter().any(|shown| shown == media_type), "{shown:?}\n{}", describe(&result));
    } else {
        assert!(result.stdout.ends_with("works\n"), "{}", describe(&result));
    }
}

fn media_types(result: &RunResult) -> Vec<String> {
    let mut found = Vec::new();
    for event in &result.events {
        if let Event::Display(display) = event {
            found.extend(display.data.keys().cloned());
            for (media_type, bytes) in &display.binary {
                assert!(media_type != "image/png" || bytes.starts_with(b"\x89PNG"));
                found.push(media_type.clone());
            }
        }
    }
    found
}

/// (package, code, the media type that it displays; without one it prints "works")
const PACKAGES: &[(&str, &str, Option<&str>)] = &[
    (
        "numpy",
        "
import numpy as np, threading
a = np.random.default_rng(1).random((1200, 1200))
inverse = np.linalg.inv(a)
assert np.allclose(a @ inverse, np.eye(1200), atol=1e-6)
from threadpoolctl import threadpool_info
assert any(pool['user_api'] == 'blas' for pool in threadpool_info())
print('works')
",
        None,
    ),
    (
        "pandas",
        "
import pandas as pd
frame = pd.DataFrame({'k': list('abab'), 'v': [1, 2, 3, 4]})
assert frame.groupby('k').v.sum().to_dict() == {'a': 4, 'b': 6}
frame.to_csv('f.csv', index=False)
assert pd.read_csv('f.csv').equals(frame)
frame
",
        Some("text/html"),
    ),
    (
        "scipy",
        "
from scipy import optimize, sparse, fft, stats
import numpy as np
assert abs(optimize.brentq(lambda x: x * x - 2, 0, 2) - 2 ** .5) < 1e-9
assert np.allclose(fft.ifft(fft.fft(np.arange(4096.), workers=2), workers=2), np.arange(4096.))
assert stats.ttest_ind([1, 2, 3], [1, 2, 3]).pvalue == 1
print('works')
",
        None,
    ),
    (
        "matplotlib",
        "
import matplotlib.pyplot as plt
plt.plot([1, 2, 3]); plt.title('ä ☃'); plt.show()
",
        Some("image/png"),
    ),
    (
        "seaborn",
        "
import seaborn as sns, pandas as pd
sns.barplot(pd.DataFrame({'x': list('abc'), 'y': [1, 2, 3]}), x='x', y='y')
",
        Some("image/png"),
    ),
    (
        "plotly",
        "
import plotly.express as px
px.bar(x=['a', 'b'], y=[1, 2]).show()
",
        Some("application/vnd.plotly.v1+json"),
    ),
    (
        "scikit-learn",
        "
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.ensemble import RandomForestClassifier
x, y = make_blobs(600, centers=3, random_state=1, cluster_std=.3)
assert RandomForestClassifier(50, n_jobs=2, random_state=1).fit(x, y).score(x, y) > .95
assert len(set(KMeans(3, n_init=4, random_state=1).fit_predict(x))) == 3
print('works')
",
        None,
    ),
    (
        "scikit-learn in processes",
        "
from joblib import Parallel, delayed
assert Parallel(n_jobs=2)(delayed(pow)(i, 2) for i in range(8)) == [i * i for i in range(8)]
print('works')
",
        None,
    ),
    (
        "multiprocessing",
        "
import multiprocessing, concurrent.futures
with multiprocessing.get_context('fork').Pool(2) as pool:
    assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert list(pool.map(abs, range(-100, 0))) == list(range(100, 0, -1))
print('works')
",
        None,
    ),
    (
        "statsmodels",
        "
import numpy as np, statsmodels.api as sm, statsmodels.formula.api as smf, pandas as pd
x = np.arange(50.); y = 3 * x + 1
assert np.allclose(sm.OLS(y, sm.add_constant(x)).fit().params, [1, 3])
data = pd.DataFrame({'x': x, 'y': y + np.sin(x)})
assert 'R-squared' in str(smf.ols('y ~ x', data).fit().summary())
print('works')
",
        None,
    ),
    (
        "sympy",
        "
import sympy as sp
x = sp.Symbol('x')
assert sp.integrate(sp.sin(x), x) == -sp.cos(x) and sp.solve(x**2 - 4) == [-2, 2]
sp.sqrt(x)
",
        Some("text/latex"),
    ),
    (
        "networkx",
        "
import networkx as nx
assert nx.shortest_path(nx.cycle_graph(6), 0, 3) in ([0, 1, 2, 3], [0, 5, 4, 3])
assert abs(sum(nx.pagerank(nx.karate_club_graph()).values()) - 1) < 1e-6
print('works')
",
        None,
    ),
    (
        "pillow",
        "
from PIL import Image
Image.new('RGB', (32, 32), 'red').rotate(45)
",
        Some("image/png"),
    ),
    (
        "openpyxl",
        "
import openpyxl
book = openpyxl.Workbook(); book.active['A1'] = 'ä'; book.save('b.xlsx')
assert openpyxl.load_workbook('b.xlsx').active['A1'].value == 'ä'
print('works')
",
        None,
    ),
    (
        "xlsxwriter",
        "
import pandas as pd
frame = pd.DataFrame({'a': [1, 2]})
with pd.ExcelWriter('c.xlsx', engine='xlsxwriter') as writer: frame.to_excel(writer, index=False)
assert pd.read_excel('c.xlsx').equals(frame)
print('works')
",
        None,
    ),
    (
        "pyarrow",
        "
import pyarrow as pa, pyarrow.parquet as pq, pyarrow.compute as pc
table = pa.table({'a': list(range(100_000)), 'b': ['x'] * 100_000})
pq.write_table(table, 't.parquet', row_group_size=5_000)
back = pq.read_table('t.parquet', use_threads=True)
assert back.equals(table) and pc.sum(back['a']).as_py() == 4999950000
assert len(back.to_pandas(use_threads=True)) == 100_000
print('works')
",
        None,
    ),
    (
        "duckdb",
        "
import duckdb, pandas as pd
frame = pd.DataFrame({'k': list('ab') * 50_000, 'v': range(100_000)})
rows = duckdb.sql('select k, count(*) n, sum(v) s from frame group by k order by k').fetchall()
assert rows == [('a', 50000, 2499950000), ('b', 50000, 2500000000)], rows
print('works')
",
        None,
    ),
    (
        "polars",
        "
import polars as pl
frame = pl.DataFrame({'k': ['a', 'b'] * 50_000, 'v': range(100_000)})
lazy = frame.lazy().group_by('k').agg(pl.col('v').sum()).sort('k').collect()
assert lazy['v'].to_list() == [2499950000, 2500000000]
assert pl.thread_pool_size() >= 1
print('works')
",
        None,
    ),
    (
        "pdfplumber and reportlab",
        "
import pdfplumber
from reportlab.pdfgen import canvas
page = canvas.Canvas('p.pdf'); page.drawString(100, 700, 'Hello there'); page.save()
with pdfplumber.open('p.pdf') as pdf: assert 'Hello there' in pdf.pages[0].extract_text()
print('works')
",
        None,
    ),
    (
        "pypdf",
        "
import pypdf
writer = pypdf.PdfWriter(); writer.add_blank_page(100, 100)
writer.encrypt('secret', algorithm='AES-256'); writer.write('w.pdf')
assert len(pypdf.PdfReader('w.pdf', password='secret').pages) == 1
print('works')
",
        None,
    ),
    (
        "python-docx",
        "
import docx
document = docx.Document(); document.add_paragraph('Hello'); document.save('d.docx')
assert docx.Document('d.docx').paragraphs[0].text == 'Hello'
print('works')
",
        None,
    ),
    (
        "python-pptx",
        "
import pptx
deck = pptx.Presentation(); slide = deck.slides.add_slide(deck.slide_layouts[0])
slide.shapes.title.text = 'Hello'; deck.save('d.pptx')
assert pptx.Presentation('d.pptx').slides[0].shapes.title.text == 'Hello'
print('works')
",
        None,
    ),
    (
        "lxml",
        "
from lxml import etree
assert etree.fromstring('<a><b>x</b></a>').xpath('//b/text()') == ['x']
print('works')
",
        None,
    ),
    (
        "beautifulsoup4",
        "
from bs4 import BeautifulSoup
for parser in ('lxml', 'html.parser'):
    assert BeautifulSoup('<p class=x>Hi <b>you</b>', parser).select_one('p.x b').text == 'you'
print('works')
",
        None,
    ),
    (
        "requests and httpx",
        "
import http.server, threading, httpx, requests
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
server.RequestHandlerClass.log_message = lambda *_: None
threading.Thread(target=server.serve_forever, daemon=True).start()
open('hello.txt', 'w').write('hello')
url = f'http://127.0.0.1:{server.server_port}/hello.txt'
assert requests.get(url, timeout=5).text == httpx.get(url, timeout=5).text == 'hello'
server.shutdown()
print('works')
",
        None,
    ),
    (
        "aiohttp and websocket-client",
        "
import aiohttp, asyncio, websocket
from aiohttp import web
async def echo(request):
    ws = web.WebSocketResponse(); await ws.prepare(request)
    async for message in ws: await ws.send_str(message.data + '!')
    return ws
app = web.Application(); app.router.add_get('/', echo)
runner = web.AppRunner(app); await runner.setup()
site = web.TCPSite(runner, '127.0.0.1', 0); await site.start()
url = f'http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/'
async with aiohttp.ClientSession() as session, session.ws_connect(url) as ws:
    await ws.send_str('hello')
    assert (await ws.receive_str()) == 'hello!'
def plain():
    ws = websocket.create_connection(url.replace('http', 'ws'), timeout=5)
    ws.send('hi'); got = ws.recv(); ws.close(); return got
assert await asyncio.to_thread(plain) == 'hi!'
await runner.cleanup()
print('works')
",
        None,
    ),
    (
        "jinja2 and the style of frames",
        "
import pandas as pd
pd.DataFrame({'a': [1.234]}).style.format('{:.1f}').background_gradient()
",
        Some("text/html"),
    ),
    (
        "python-dateutil",
        "
import pandas as pd
time = pd.Timestamp('2024-03-10 12:00', tz='dateutil/Europe/Berlin')
assert str(time.tz_convert('dateutil/US/Eastern')) == '2024-03-10 07:00:00-04:00'
print('works')
",
        None,
    ),
    (
        "sqlalchemy",
        "
import pandas as pd
from sqlalchemy import create_engine
engine = create_engine('sqlite:///a.db')
pd.DataFrame({'a': [1, 2]}).to_sql('t', engine, index=False)
assert pd.read_sql('select sum(a) s from t', engine).s[0] == 3
print('works')
",
        None,
    ),
    (
        "small packages",
        "
import asyncio, dotenv, html5lib, markdown, natsort, nest_asyncio, prettytable, pydantic
import pytest, regex, xlrd, xmltodict, yaml
from faker import Faker
from fpdf import FPDF
from rich.table import Table
assert yaml.safe_load('a: [1, 2]') == {'a': [1, 2]} and Faker().name()
assert natsort.natsorted(['a10', 'a2']) == ['a2', 'a10'] and markdown.markdown('*x*')
assert xmltodict.parse('<a><b>1</b></a>') == {'a': {'b': '1'}} and regex.findall(r'\\p{L}', 'é1') == ['é']
nest_asyncio.apply()
pdf = FPDF(); pdf.add_page(); pdf.set_font('helvetica'); pdf.cell(text='x'); pdf.output('a.pdf')
print('works')
",
        None,
    ),
    (
        "wordcloud",
        "
from wordcloud import WordCloud
WordCloud().generate('one two two three three three').to_image()
",
        Some("image/png"),
    ),
    (
        "tabulate",
        "
from tabulate import tabulate
text = tabulate([['x', 1]], headers=['name', 'n'], tablefmt='plain')
assert text.split() == ['name', 'n', 'x', '1']
print('works')
",
        None,
    ),
    (
        "tqdm",
        "
from tqdm import tqdm
assert sum(tqdm(range(1000))) == 499500
print('works')
",
        None,
    ),
    (
        "cloudpickle",
        "
import cloudpickle, pickle
y = 3
assert pickle.loads(cloudpickle.dumps(lambda x: x + y))(4) == 7
print('works')
",
        None,
    ),
    (
        "cryptography",
        "
from cryptography.fernet import Fernet
box = Fernet(Fernet.generate_key())
assert box.decrypt(box.encrypt(b'x')) == b'x'
print('works')
",
        None,
    ),
    (
        "psutil",
        "
import psutil
assert psutil.Process().memory_info().rss > 0 and psutil.cpu_count() >= 1
memory = psutil.virtual_memory()
host = int(open('/proc/meminfo').readline().split()[1]) * 1024
assert memory.total < host and 0 < memory.used < memory.total, (memory, host)
data = b'x' * (64 << 20)
assert psutil.virtual_memory().used - memory.used >= 63 << 20, (memory, psutil.virtual_memory())
assert psutil.net_if_addrs()['lo'][0].address == '127.0.0.1'
print('works')
",
        None,
    ),
    (
        "joblib counts the cores",
        "
import sys, warnings
warnings.simplefilter('error')
from joblib.externals.loky import cpu_count
assert cpu_count(only_physical_cores=True) >= 1
print('works')
",
        None,
    ),
    (
        "files of the user come first",
        "
for name in ('kernel', 'docx', 'queue'):
    open(name + '.py', 'w').write('mine = True')
import kernel, docx, queue
assert kernel.mine and docx.mine and queue.mine
import sys
assert '/opt/woma' not in sys.path, sys.path
print('works')
",
        None,
    ),
    (
        "IPython",
        "
import IPython
assert get_ipython() is not None and IPython.version_info >= (8,)
got = !echo hello
assert list(got) == ['hello'], got
%time sum(range(10))
print('works')
",
        None,
    ),
];
