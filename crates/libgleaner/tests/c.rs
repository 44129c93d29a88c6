//! The library as C programs use it: the example and the errors, compiled and run. No daemon can be had here, so that tasks
//! run on this machine; the suite of the whole runs the example on a pool.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Compiles a program against the header and the library; `None` where there is no compiler.
fn compile(source: &Path, folder: &Path) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let libraries = std::env::current_exe().expect("this program").parent()?.to_path_buf();
    let program = folder.join("program");
    let compiled = Command::new("cc")
        .args(["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, source])
        .arg(format!("-I{}", here.join("include").display()))
        .args([format!("-L{}", libraries.display()), format!("-Wl,-rpath,{}", libraries.display())])
        .args(["-lgleaner", "-lpthread"])
        .output();
    match compiled {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("SKIPPED: there is no C compiler here (cc): install gcc");
            None
        }
        Err(error) => panic!("cannot run cc: {error}"),
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
    }
}

/// Runs a program that finds no daemon, and none to start.
fn run(program: &Path, folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let run = folder.join("run");
    let Output { status, stdout, stderr } = Command::new(program)
        .args(arguments)
        .env("GLEANER_RUNTIME_DIR", run)
        .env("PATH", "/usr/bin:/bin")
        .current_dir(folder)
        .output()
        .expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn the_example_maps_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/parallel_map.c");
    let Some(program) = compile(&example, folder.path()) else { return };
    let numbers: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let arguments: Vec<&str> =
        ["sh", "-c", "echo \"<$0>\"", "--"].into_iter().chain(numbers.iter().map(String::as_str)).collect();
    let want: String = numbers.iter().map(|number| format!("<{number}>\n")).collect();
    assert_eq!(run(&program, folder.path(), &arguments), (Some(0), want, String::new()));
    let (code, _, err) = run(&program, folder.path(), &["no-such-program", "--", "x"]);
    assert!(code == Some(1) && err.contains("no-such-program") && err.contains("No such file"), "{code:?} {err}");
}

/// Every way to use it wrongly, and `remrun`.
const PROGRAM: &str = r#"
#include <assert.h>
#include <errno.h>
#include <gleaner.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define CHECK(condition) do { if (!(condition)) { \
    printf("line %d: %s: errno %d, %s\n", __LINE__, #condition, errno, gleaner_error()); exit(9); } } while (0)

int main(void)
{
    gleaner_output output;
    CHECK(strcmp(gleaner_error(), "") == 0);
    CHECK(remrun(NULL, NULL) == -1 && errno == EINVAL && strcmp(gleaner_error(), "argv is NULL") == 0);
    CHECK(remrun(NULL, (char *[]){ NULL }) == -1 && errno == EINVAL);
    CHECK(gleaner_run(NULL, NULL, NULL) == -1 && errno == EINVAL);
    char *argv[] = { "sh", "-c", "printf '%s %s' \"$A\" \"$(pwd)\"; exit 3", NULL };
    char *env[] = { "A=one two", "PATH=/usr/bin:/bin", "OLDPWD", NULL };
    gleaner_task task = { .argv = argv, .env = env, .folder = "/" };
    int status = gleaner_run(NULL, &task, &output);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(strcmp(output.out, "one two /") == 0 && output.out_length == 9 && output.ran_here == 1);
    gleaner_output_free(&output);
    CHECK(output.out == NULL);
    gleaner_output_free(&output);
    task.flags = GLEANER_NO_LOCAL;
    CHECK(gleaner_run(NULL, &task, &output) == -1 && errno == EIO && strstr(gleaner_error(), "must not run here"));
    CHECK(output.out == NULL);
    task.flags = 0x80;
    CHECK(gleaner_run(NULL, &task, NULL) == -1 && errno == EINVAL);
    task.flags = 0;
    task.streams = (int[]){ 0, 77, 2 };
    CHECK(gleaner_run(NULL, &task, NULL) == -1 && errno == EINVAL && strstr(gleaner_error(), "77 is not open"));
    gleaner_job *job = gleaner_job_open();
    CHECK(job != NULL);
    fflush(stdout);
    CHECK(remrun(job, (char *[]){ "echo", "said", NULL }) == 0);
    status = remrun(job, (char *[]){ "sh", "-c", "kill -9 $$", NULL });
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == 9);
    gleaner_job_cancel(job);
    CHECK(remrun(job, (char *[]){ "true", NULL }) == -1 && errno == ECANCELED);
    gleaner_job_close(job);
    gleaner_job_close(NULL);
    return 0;
}
"#;

#[test]
fn errors_are_told_by_number_and_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("program.c");
    std::fs::write(&source, PROGRAM).expect("written");
    let Some(program) = compile(&source, folder.path()) else { return };
    let (code, out, err) = run(&program, folder.path(), &[]);
    assert_eq!((code, out.as_str()), (Some(0), "said\n"), "{err}");
}
