// Package ci holds what keeps the repository honest: the rules of who may
// import whom, the checks on generated files, and the summary of a test run.
// It has no code of its own outside tests.
package ci
