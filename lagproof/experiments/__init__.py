"""Many runs: objectives x lags x seeds side by side, with statistics over seeds."""
