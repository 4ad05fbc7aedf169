//! What parses, what does not, and in which words.

use super::*;

const PYTHON: Python = Python::new(3, 11);

#[test]
fn a_problem_has_place_and_words() {
    let problem = problem("x = 1\nreturn x\n", PYTHON).unwrap();
    assert_eq!((problem.line, problem.column), (2, 1));
    assert_eq!(problem.message, "'return' outside function");
}
