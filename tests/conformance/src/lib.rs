//! Conformance tests: see tests/.
