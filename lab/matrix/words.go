package matrix

import (
	"maps"
	"slices"
	"strings"
)

func join(list []string) string { return strings.Join(list, ", ") }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
