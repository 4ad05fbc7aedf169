use std::time::Instant;
use woma_sandbox::*;
fn main() -> std::process::ExitCode {
    let a: Vec<String> = std::env::args().collect();
    if a.get(1).map(String::as_str) == Some("steward") {
        return steward::main();
    }
    let rt =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    rt.block_on(async {
        let env = Environment {
            prefix: "/tmp/woma-data/envs/default-36331cb22ab6".into(),
            python: "/tmp/woma-data/envs/default-36331cb22ab6/bin/python".into(),
            is_virtual: true,
            mounts: vec![],
        };
        let mut c = Config::new(env);
        c.preload = Tier::Base;
        let t = Instant::now();
        let sb = match Sandbox::start(c).await {
            Ok(s) => s,
            Err(e) => {
                eprintln!("{e}");
                std::process::exit(1)
            }
        };
        eprintln!("start {:?} {:?} {:?}", t.elapsed(), sb.limits_held_by(), sb.health());
        for src in a.iter().skip(1) {
            let t = Instant::now();
            let mut cell = match sb.open(&Spec::default()).await {
                Ok(c) => c,
                Err(e) => {
                    eprintln!("open: {e}");
                    return;
                }
            };
            let t1 = t.elapsed();
            let exit = cell
                .run(&Run::new(src.clone()), &mut |e| match e {
                    Event::Output { stream, bytes } => {
                        eprintln!("  {stream:?} {}", String::from_utf8_lossy(&bytes))
                    }
                    o => eprintln!("  {:.300}", format!("{o:?}")),
                })
                .await;
            eprintln!("open {:?} total {:?} {:?}", t1, t.elapsed(), exit);
            let t = Instant::now();
            let exit = cell.run(&Run::new("print(1)"), &mut |_| ()).await;
            eprintln!("warm {:?} {:?}", t.elapsed(), exit.outcome);
        }
        let mut v = vec![];
        let mut w = vec![];
        for _ in 0..100 {
            let t = Instant::now();
            let mut c = sb.open(&Spec::default()).await.unwrap();
            c.run(&Run::new("print(1)"), &mut |_| ()).await;
            v.push(t.elapsed());
            eprint!("{}", String::from_utf8_lossy(&c.take_log()));
            for _ in 0..5 {
                let t = Instant::now();
                c.run(&Run::new("print(1)"), &mut |_| ()).await;
                w.push(t.elapsed());
            }
        }
        v.sort();
        w.sort();
        eprintln!(
            "open→print p50 {:?} p99 {:?}; warm p50 {:?} p99 {:?}",
            v[50], v[98], w[250], w[490]
        );
    });
    std::process::ExitCode::SUCCESS
}
