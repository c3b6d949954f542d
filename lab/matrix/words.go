package matrix

import (
	"maps"
	"slices"
	"strings"
)

func join(list []string) string { return strings.Join(list, ", ") }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}
