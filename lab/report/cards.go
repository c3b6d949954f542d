package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kerninst/lab/card"
)

// WriteCards writes the cards of one ISA into dir, as text and as a document.
// Without cards there is neither file: what an earlier run left is removed.
func WriteCards(dir string, cards []card.Card) error {
	text, doc := filepath.Join(dir, card.TextFile), filepath.Join(dir, card.JSONFile)
	if len(cards) == 0 {
		for _, old := range []string{text, doc} {
			if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	}
	all := card.Cards{Schema: card.Schema, Cards: cards}
	data, err := encode(all)
	if err != nil {
		return fmt.Errorf("%s: %w", card.JSONFile, err)
	}
	var parts []string
	for i := range cards {
		parts = append(parts, cards[i].Text())
	}
	if err := writeFile(text, []byte(CleanText(strings.Join(parts, "\n")))); err != nil {
		return err
	}
	return writeFile(doc, data)
}

// ReadCards reads what WriteCards wrote; none if there is nothing.
func ReadCards(dir string) ([]card.Card, error) {
	file := filepath.Join(dir, card.JSONFile)
	data, err := readPlain(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var all card.Cards
	if err := decode(data, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	clean(&all)
	return all.Cards, nil
}
