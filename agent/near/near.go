// Package near finds the word that somebody probably meant.
package near

import (
	"regexp"
	"strconv"
	"strings"
)

// shortest is how many letters of its beginning stand for a word.
const shortest = 3

// Word returns the known word that is nearest to the given one, or "" if none
// is near enough to be what was meant: it begins with the word, or at most a
// third of the word's letters, and one in any case, are other, missing, too many,
// or swapped with their neighbour.
func Word(word string, known []string) (nearest string) {
	word = strings.ToLower(word)
	best := max(1, len(word)/3) + 1
	for _, k := range known {
		d := distance(word, strings.ToLower(k))
		if len(word) >= shortest && strings.HasPrefix(strings.ToLower(k), word) {
			d = min(d, 1)
		}
		if d < best {
			best, nearest = d, k
		}
	}
	return nearest
}

// Hint is Word as the end of an error message: empty if nothing is near.
func Hint(word string, known []string) string {
	if k := Word(word, known); k != "" {
		return "; did you mean " + k + "?"
	}
	return ""
}

// distance counts the edits from a to b: insertions, deletions, substitutions
// and swaps of neighbours (optimal string alignment). Its rows are those of the
// prefixes of a; three are enough, since a swap looks two back.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// plain is a name that may stand in a message as it is; mostQuoted is how much is said of another, in bytes.
var plain = regexp.MustCompile(`^[\w.:/-]{1,100}$`)

const mostQuoted = 60

// Quoted is a name that somebody gave, as a message has it: between quotes, and not in full, if it is no likely one.
func Quoted(name string) string {
	switch {
	case plain.MatchString(name):
		return name
	case len(name) > mostQuoted:
		return strconv.Quote(name[:mostQuoted]) + "..."
	}
	return strconv.Quote(name)
}
