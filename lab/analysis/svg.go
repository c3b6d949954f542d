package analysis

import (
	"bytes"
	"fmt"
	"html"

	"kerninst/agent/plan"
)

// inks are the parts of a bar, in order, and their colours: what needs a trap, or cannot
// be had at all, is at the end.
var inks = []struct{ part, colour string }{
	{plan.Jump.String(), "#2a6f97"}, {plan.Springboard.String(), "#61a5c2"}, {plan.Pun.String(), "#89c2d9"},
	{plan.Quiesced.String(), "#a9d6e5"}, {plan.Trap.String(), "#e9c46a"}, {"refused", "#c1121f"}, {"reserved", "#adb5bd"},
}

// part is how many of the instructions are of one.
func (c *Counts) part(name string) int {
	switch name {
	case "refused":
		return c.refused()
	case "reserved":
		return c.Reserved
	}
	return c.Mechanisms[name]
}

// Sizes of the drawing, in pixels.
const (
	svgName, svgBar, svgRow, svgText = 230, 600, 24, 140
)

// SVG draws a bar for each section, of equal length, with the parts of its instructions.
func (s *Survey) SVG() []byte {
	var b bytes.Buffer
	w, h := svgName+svgBar+svgText, svgRow*(len(s.Sections)+2)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", w, h, w, h)
	fmt.Fprintf(&b, "<title>%s: how instructions can be spliced, by section</title>\n", html.EscapeString(s.Kernel))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", w, h)
	x := svgName
	for _, ink := range inks {
		if s.Counts.part(ink.part)+s.Modules.part(ink.part) > 0 {
			fmt.Fprintf(&b, `<rect x="%d" y="6" width="12" height="12" fill="%s"/><text x="%d" y="16">%s</text>`+"\n", x, ink.colour, x+16, ink.part)
			x += 110
		}
	}
	for k, section := range s.Sections {
		section.bar(&b, svgRow*(k+1))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// bar draws one section at a height.
func (s *Section) bar(b *bytes.Buffer, y int) {
	name := s.Name
	if s.Module {
		name = "module " + name
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", svgName-8, y+16, html.EscapeString(name))
	x := float64(svgName)
	for _, ink := range inks {
		if n := s.part(ink.part); n > 0 {
			wide := svgBar * float64(n) / float64(s.Instructions)
			fmt.Fprintf(b, `<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s"><title>%s: %s</title></rect>`+"\n", x, y+3, wide, svgRow-6, ink.colour, ink.part, count(n))
			x += wide
		}
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", svgName+svgBar+8, y+16, count(s.Instructions))
}
