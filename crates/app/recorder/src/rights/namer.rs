//! Names the code of processes, with the rights that the caller gives for each call.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heapprof_profile::Profile;
use heapprof_symbolize::allocators::{AllocatorSurvey, UnhookedAllocator};
use heapprof_symbolize::{SymbolizeOptions, SymbolizeSummary, Symbolizer};

use super::ProcessRights;

/// The namer of code. It keeps results that were read with public rights separate from its other
/// results.
pub struct ProcessNamer {
    own: Symbolizer,
    public: Symbolizer,
    own_survey: AllocatorSurvey,
    public_survey: AllocatorSurvey,
}

impl ProcessNamer {
    /// Makes a namer with the options `options`.
    pub fn new(options: SymbolizeOptions) -> Self {
        let public = SymbolizeOptions {
            public_files_only: true,
            // The process that has opened these files may have had more rights.
            opened: Vec::new(),
            ..options.clone()
        };
        Self {
            own_survey: AllocatorSurvey::new(options.clone()),
            public_survey: AllocatorSurvey::new(public.clone()),
            own: Symbolizer::new(options),
            public: Symbolizer::new(public),
        }
    }

    /// Sets the opened executables of the process. They remain correct even if the files' names
    /// lead to other files. They are not used with public rights.
    pub fn set_opened(&mut self, opened: Vec<PathBuf>) {
        self.own.set_opened(opened);
    }

    /// Returns the symbolizer for the rights `rights`.
    fn symbolizer_for(&mut self, rights: ProcessRights) -> &mut Symbolizer {
        match rights {
            ProcessRights::User(_) => &mut self.own,
            ProcessRights::Public => &mut self.public,
        }
    }

    /// Names a profile's code with the rights of the process that names the files.
    ///
    /// # Errors
    /// heapprof can't act with these rights.
    pub fn symbolize(
        &mut self,
        profile: &mut Profile,
        rights: ProcessRights,
    ) -> io::Result<SymbolizeSummary> {
        let symbolizer = self.symbolizer_for(rights);
        rights.acting(|| symbolizer.symbolize(profile))
    }

    /// Searches a program's files for ways of allocating that are not hooked. The files are opened
    /// with the rights of the process that names them.
    ///
    /// # Errors
    /// heapprof can't act with these rights.
    pub fn survey<'a>(
        &mut self,
        files: impl Iterator<Item = &'a Path> + Send,
        rights: ProcessRights,
    ) -> io::Result<Vec<UnhookedAllocator>> {
        let survey = match rights {
            ProcessRights::User(_) => &mut self.own_survey,
            ProcessRights::Public => &mut self.public_survey,
        };
        rights.acting(|| survey.survey_files(files))
    }

    /// Names a profile's code. Files of other users' processes are read for at most `limit`.
    /// Returns whether all files were read.
    ///
    /// # Errors
    /// heapprof can't act with these rights.
    pub fn symbolize_within(
        &mut self,
        profile: &mut Profile,
        rights: ProcessRights,
        limit: Duration,
    ) -> io::Result<bool> {
        let symbolizer = self.symbolizer_for(rights);
        let is_ours = rights.are_ours();
        rights.acting(|| match is_ours {
            true => {
                symbolizer.symbolize(profile);
                true
            }
            false => symbolizer.symbolize_until(profile, Instant::now() + limit),
        })
    }
}
