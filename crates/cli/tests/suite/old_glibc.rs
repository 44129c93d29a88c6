//! Which C library the programs need.

/// Minor version of glibc 2 that the programs are promised to start on.
const MINOR_MAX: u32 = 31;

#[test]
#[cfg(all(target_env = "gnu", target_arch = "x86_64"))]
fn programs_start_on_a_c_library_of_2020() {
    const PREFIX: &[u8] = b"GLIBC_2.";
    for program in [env!("CARGO_BIN_EXE_gleaner"), env!("CARGO_BIN_EXE_remrun")] {
        let bytes = std::fs::read(program).expect("a program");
        let mut found = 0;
        for at in bytes.windows(PREFIX.len()).enumerate().filter(|(_, name)| *name == PREFIX).map(|(at, _)| at) {
            let digits = bytes[at + PREFIX.len()..].iter().take_while(|byte| byte.is_ascii_digit());
            let minor = digits.fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
            assert!(minor <= MINOR_MAX, "{program} needs GLIBC_2.{minor}: add what needs it to src/old_glibc.rs");
            found += 1;
        }
        // A whole program has the library in it.
        assert!(found > 0 || cfg!(whole) && program.ends_with("remrun"), "{program} is linked with glibc");
    }
}
