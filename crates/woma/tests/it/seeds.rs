//! Example programs of older systems, verbatim, under their presets.

use serde_json::{Value, json};

use crate::client::client;
use crate::harness::Server;

/// (program, what `result` is, how standard output begins)
const SHOWN: &[(&str, &str, &str)] = &[
    ("result = 2 + 2\nprint(f'The answer is: {result}')", "4", "The answer is: 4\n"),
    (
        "import math\ndata = [1, 2, 3, 4, 5]\nresult = sum(data) / len(data)\nprint(f'Average: {result}')",
        "3.0",
        "Average: 3.0\n",
    ),
    (
        "
def fibonacci(n):
    if n <= 1:
        return n
    return fibonacci(n-1) + fibonacci(n-2)

result = [fibonacci(i) for i in range(10)]
print(\"Fibonacci sequence:\", result)
",
        "[0,1,1,2,3,5,8,13,21,34]",
        "Fibonacci sequence: [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]\n",
    ),
    (
        "
import statistics
data = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
mean = statistics.mean(data)
median = statistics.median(data)
stdev = statistics.stdev(data)

result = {
    'mean': mean,
    'median': median,
    'std_dev': stdev
}
print(f\"Statistics: {result}\")
",
        r#"{"mean":5.5,"median":5.5,"std_dev":3.0276503540974917}"#,
        "Statistics: {'mean': 5.5",
    ),
    (
        "
def bubble_sort(arr):
    n = len(arr)
    for i in range(n):
        for j in range(0, n-i-1):
            if arr[j] > arr[j+1]:
                arr[j], arr[j+1] = arr[j+1], arr[j]
    return arr

test_data = [64, 34, 25, 12, 22, 11, 90]
result = bubble_sort(test_data.copy())
print(f\"Sorted: {result}\")
",
        "[11,12,22,25,34,64,90]",
        "Sorted: [11, 12, 22, 25, 34, 64, 90]\n",
    ),
    (
        "
import math

def calculate_pi_leibniz(terms):
    pi_approx = 0
    for i in range(terms):
        pi_approx += ((-1) ** i) / (2 * i + 1)
    return pi_approx * 4

result = calculate_pi_leibniz(1000)
print(f\"Pi approximation: {result}\")
print(f\"Difference from math.pi: {abs(result - math.pi)}\")
",
        "3.140592653839794",
        "Pi approximation: 3.1405926538",
    ),
];

#[test]
fn programs_of_the_restricted_system_run_under_its_preset() {
    let science = [("SANDBOX_ENABLE_DATA_SCIENCE", "true")];
    let server = Server::start_with(&["--preset", "ibm-sandbox"], &science);
    let client = client(&server);
    for (program, result, stdout) in SHOWN {
        let given = json!({ "code": program, "timeout": 10, "capture_output": true });
        let reply = client.run(&given);
        assert_eq!(reply["success"], true, "{reply}");
        assert_eq!(reply["result"], serde_json::from_str::<Value>(result).unwrap(), "{reply}");
        assert!(reply["stdout"].as_str().unwrap().starts_with(stdout), "{reply}");
        assert_eq!((&reply["stderr"], &reply["exit_code"]), (&json!(""), &json!(0)), "{reply}");
        assert!(reply["execution_time"].as_f64().unwrap() > 0.0);
        uuid::Uuid::parse_str(reply["execution_id"].as_str().unwrap()).unwrap();
        let names: Vec<&str> =
            reply["variables"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(names.contains(&"result"), "{names:?}");
    }
    // Calls share no state.
    let reply = client.run(&json!({ "code": "result" }));
    assert_eq!(reply["error_detail"]["type"], "NameError", "{reply}");
    let large = "import numpy as np; data = np.random.rand(1000, 1000)";
    let reply = client.run(&json!({ "code": large, "memory_limit": "512m", "timeout": 60 }));
    assert_eq!((&reply["success"], &reply["timeout_applied"]), (&json!(true), &json!(60.0)));
    let info = client.call("get_sandbox_info", &json!({}))["structuredContent"].clone();
    assert_eq!(info["success"], true);
    assert_eq!(info["resource_limits"]["timeout"], 30.0, "{info}");
    assert_eq!(info["resource_limits"]["max_output_size"], 1_048_576);
    assert_eq!(info["resource_limits"]["memory_limit"], "128m");
    assert_eq!(info["container_mode"]["enabled"], false);
    for profile in ["basic", "data_science", "network", "filesystem"] {
        assert!(info["security_profiles"][profile]["modules"].is_array(), "{info}");
    }
}

#[test]
fn the_program_of_the_executor_runs_under_its_preset() {
    let server = Server::start(&["--preset", "python-executor"]);
    let answer = client(&server)
        .call("execute_python", &json!({ "code": "import math; print(math.sqrt(16))" }));
    let text = answer["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, "4.0");
    assert_eq!(answer["structuredContent"]["stdout"], "4.0\n");
}
