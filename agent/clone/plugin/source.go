package plugin

import "embed"

// Source is this package, for who compiles plugins.
//
//go:embed plugin.go source.go
var Source embed.FS
