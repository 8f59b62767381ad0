//! Settings of traces.

use esker_server::TraceConfig;

use super::layers::Settings;

impl Settings {
    /// Returns the collector for slow requests, if there is one.
    pub(super) fn traces(&self) -> Result<Option<TraceConfig>, String> {
        self.require("otlp-slower-than", "otlp-endpoint", "there is no collector without it")?;
        let Some(given) = self.get("otlp-endpoint") else { return Ok(None) };
        let endpoint = given.text.parse().map_err(|error| format!("{given}: {error}"))?;
        let slower_than = self.time("otlp-slower-than").unwrap_or_default();
        Ok(Some(TraceConfig { endpoint, slower_than }))
    }
}
