//! What `gleaner trust` shows, as text.

use super::Render;
use crate::render::{Facts, Table, time};
use client::policy::PROJECT_FILE;
use client::report::{ProjectGrants, Revocation, TrustedProjects};

impl Render for ProjectGrants {
    fn render(&self) -> String {
        let mut facts = Facts::default();
        facts.fact("project", &self.folder).fact("file", format!("{PROJECT_FILE}, BLAKE3 {}", self.digest));
        // All of them: who trusts a file must have seen what it says.
        let all = |entries: &[String]| match entries {
            [] => "nothing but what all commands may".to_owned(),
            entries => entries.join("\n"),
        };
        facts.fact("may change", all(&self.write)).fact("may read", all(&self.read));
        let network = if self.network { "yes, where a command is known to want it" } else { "no" };
        facts.fact("network", network);
        let never = self.never.iter().map(|entry| format!("{}: {}", entry.entry, entry.reason));
        let never = never.collect::<Vec<_>>().join("\n");
        if !never.is_empty() {
            facts.fact("NO EFFECT", never);
        }
        facts.fact("trusted", "from the next command on, until the file changes; gleaner trust --revoke ends it");
        facts.text().to_owned()
    }
}

impl Render for TrustedProjects {
    fn render(&self) -> String {
        self.render_in(None)
    }

    fn render_in(&self, columns: Option<usize>) -> String {
        let mut table = Table::new(&["TRUSTED", "PROJECT", "FILE"]);
        for project in &self.projects {
            let state =
                project.grants_nothing.as_ref().map_or("counts".to_owned(), |why| format!("grants nothing: {why}"));
            table.row(vec![time(project.trusted_ms), project.folder.clone(), state]);
        }
        table.text_in("no project is trusted: gleaner trust FOLDER trusts one", columns)
    }
}

impl Render for Revocation {
    fn render(&self) -> String {
        format!("{} is trusted no more: its {PROJECT_FILE} grants nothing\n", self.folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::report::{NeverGranted, TrustedProject};

    #[test]
    fn what_is_trusted_is_shown_in_full() {
        let grants = ProjectGrants {
            folder: "/home/u/p".into(),
            digest: "ab12".into(),
            write: vec!["~/.bashrc".into(), "out/**".into()],
            read: Vec::new(),
            network: true,
            never: vec![NeverGranted { entry: "~/.ssh".into(), reason: "it is a secret".into() }],
        };
        assert_eq!(
            grants.render(),
            "project       /home/u/p\n\
             file          .gleaner.toml, BLAKE3 ab12\n\
             may change    ~/.bashrc\n              out/**\n\
             may read      nothing but what all commands may\n\
             network       yes, where a command is known to want it\n\
             NO EFFECT     ~/.ssh: it is a secret\n\
             trusted       from the next command on, until the file changes; gleaner trust --revoke ends it\n"
        );
        let many = ProjectGrants { write: (0..99).map(|at| format!("out/{at}")).collect(), ..grants };
        assert!(many.render().contains("out/98"), "nothing is left out of what is trusted");
        let project =
            TrustedProject { folder: "/p".into(), grants_nothing: Some("it is gone".into()), ..Default::default() };
        let text = TrustedProjects { projects: vec![project] }.render();
        assert!(text.contains("/p") && text.contains("grants nothing: it is gone"), "{text}");
    }
}
