//! Contract of the rows of datasets, for both databases.

use uuid::Uuid;
use woma_core::blobs::Digest;
use woma_core::store::DatasetRow;

use crate::fixture::{Fixture, at, file_row};

fn dataset(owner: &str, name: &str, content: &str) -> DatasetRow {
    DatasetRow {
        id: Uuid::new_v4(),
        owner: owner.to_owned(),
        name: name.to_owned(),
        digest: Digest::of(content.as_bytes()),
        size_bytes: content.len() as u64,
        row_count: 3,
        column_count: 2,
        columns: r#"[{"name":"a","type":"BIGINT"}]"#.to_owned(),
        format: "csv".to_owned(),
        session_id: Some("s".to_owned()),
        source: Some("in/a.csv".to_owned()),
        created_at: at(5),
    }
}

pub(crate) async fn a_dataset_is_stored_replaced_and_dropped(fixture: Fixture) {
    let store = &fixture.store;
    assert_eq!(store.dataset("ann", "sales").await, Ok(None));
    let first = dataset("ann", "Sales", "one");
    store.put_dataset(&first).await.unwrap();
    // Names are compared as SQL does, and kept as they were written.
    assert_eq!(store.dataset("ann", "sALES").await, Ok(Some(first)));
    let source = None;
    let second = DatasetRow { source, session_id: None, ..dataset("ann", "sales", "second") };
    store.put_dataset(&second).await.unwrap();
    assert_eq!(store.datasets("ann", None, 9).await, Ok(vec![second.clone()]));
    assert_eq!(store.owner_bytes("ann").await, Ok(6), "the replaced one is not counted");
    assert_eq!(store.digests_in_use().await, Ok(vec![second.digest]));
    assert_eq!(store.drop_dataset("ann", "SALES").await, Ok(true));
    assert_eq!(store.drop_dataset("ann", "sales").await, Ok(false));
    assert_eq!(store.digests_in_use().await, Ok(vec![]));
    assert_eq!(store.owner_bytes("ann").await, Ok(0));
}

pub(crate) async fn datasets_are_paged_by_name_and_belong_to_one_owner(fixture: Fixture) {
    let store = &fixture.store;
    for name in ["b", "A", "_x", "c1"] {
        store.put_dataset(&dataset("ann", name, name)).await.unwrap();
    }
    store.put_dataset(&dataset("bob", "a", "his")).await.unwrap();
    store.put_file(&file_row("bob", "s", "f.csv")).await.unwrap();
    let (mut names, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
    loop {
        let page = store.datasets("ann", after.as_deref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        names.extend(page.into_iter().map(|row| row.name));
    }
    names.sort();
    assert_eq!(names, ["A", "_x", "b", "c1"]);
    assert_eq!(store.count_datasets("ann").await, Ok(4));
    assert_eq!(store.count_datasets("eve").await, Ok(0));
    assert_eq!(store.dataset("bob", "b").await, Ok(None));
    assert_eq!(store.dataset("bob", "A").await.unwrap().unwrap().size_bytes, 3);
    assert_eq!(store.drop_dataset("eve", "a").await, Ok(false));
    assert_eq!(store.owner_bytes("bob").await, Ok(103), "files and datasets");
}
