package report

import (
	"fmt"
	"html"
	"strings"
)

// Summary renders all runs under out as GitHub-flavoured Markdown, for
// $GITHUB_STEP_SUMMARY and its kind.
func Summary(out string) ([]byte, error) {
	runs, err := load(out)
	if err != nil {
		return nil, err
	}
	return summary(runs), nil
}

func summary(runs []run) []byte {
	var b strings.Builder
	l := looks[overall(runs)]
	fmt.Fprintf(&b, "## %s Lab run: %s\n\n%s\n\n", l.Glyph, l.Words, md(ranWith(runs)))
	summaryTable(&b, runs)
	summaryPublished(&b, runs)
	for _, name := range scenarioNames(runs) {
		summaryCompared(&b, runs, name)
		summaryGrids(&b, runs, name)
	}
	for _, t := range troubles(runs) {
		summaryTrouble(&b, t)
	}
	fmt.Fprintf(&b, "\nAgain; in exact time, results.json comes out the same to the byte:\n\n%s", Fence(rerun(runs)))
	return []byte(b.String())
}

func summaryTable(b *strings.Builder, runs []run) {
	b.WriteString("| scenario |")
	rule := "|---|"
	for _, r := range runs {
		fmt.Fprintf(b, " %s |", r.Results.Arch)
		rule += "---|"
	}
	fmt.Fprintf(b, "\n%s\n| **all** |", rule)
	for _, r := range runs {
		fmt.Fprintf(b, " **%s** |", words(looks[r.Results.Status]))
	}
	b.WriteByte('\n')
	for _, name := range scenarioNames(runs) {
		fmt.Fprintf(b, "| %s |", md(name))
		for i := range runs {
			fmt.Fprintf(b, " %s |", summaryCell(runs[i].scenario(name)))
		}
		b.WriteByte('\n')
	}
}

func summaryCell(s *Scenario) string {
	if s == nil {
		return words(notRun)
	}
	cell := words(looks[s.Status])
	if key := keyFigures(s); key != "" {
		cell += "<br>" + md(key)
	}
	if s.Reason != "" {
		cell += "<br>" + md(s.Reason)
	}
	return cell
}

// summaryCompared has one line for each ISA: means, and the operations that probes add
// most to.
func summaryCompared(b *strings.Builder, runs []run, scenario string) {
	var lines []string
	for i := range runs {
		s := runs[i].scenario(scenario)
		if s == nil || len(comparisons(s)) == 0 {
			continue
		}
		ops, splices, kprobes, factor := comparisons(s), "–", "–", "–"
		if ms := means(s); len(ms) > 0 {
			splices, kprobes = times(ms[0].Splice.Value), times(ms[0].Kprobe.Value)
			if f := ms[0].Factor; f != nil {
				factor = number(f.Value)
			}
		}
		most, mostKprobed := worst(ops, withSplices), worst(ops, withKprobes)
		lines = append(lines, fmt.Sprintf("| %s | %d | %s | %s | %s | %s %s | %s %s |", runs[i].Results.Arch, len(ops), splices, kprobes, factor,
			md(most.Name), times(most.Splice.Ratio.Value), md(mostKprobed.Name), times(mostKprobed.Kprobe.Ratio.Value)))
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### %s: time of operations with probes, 1 is bare\n\n%s\n%s\n%s\n", md(scenario),
		"| ISA | operations | splices, mean | kprobes, mean | kprobes add, times as much | most with splices | most with kprobes |",
		"|---|---:|---:|---:|---:|---|---|", strings.Join(lines, "\n"))
}

func summaryTrouble(b *strings.Builder, t trouble) {
	where := t.Arch
	if t.Scenario != "" {
		where += ", " + md(t.Scenario)
	}
	fmt.Fprintf(b, "\n### %s %s: %s\n\n", t.Look.Glyph, where, t.Look.Words)
	f := t.Failure
	if f != nil {
		fmt.Fprintf(b, "**%s**: %s\n", md(f.Kind), md(f.Summary))
	}
	for _, c := range t.Failed {
		fmt.Fprintf(b, "- %s: got %s, want %s\n", md(c.What), md(c.Got), md(c.Want))
	}
	if f != nil && f.Rerun != "" {
		fmt.Fprintf(b, "\n%s", Fence(f.Rerun))
	}
	if f != nil && len(f.Console) > 0 {
		// A blank line would end the HTML block of <details>, but not that of <pre>.
		fmt.Fprintf(b, "\n<details><summary>console, last %d lines</summary>\n\n<pre>\n%s\n</pre>\n\n</details>\n",
			len(f.Console), html.EscapeString(CleanText(strings.Join(f.Console, "\n"))))
	}
}

func words(l look) string { return l.Glyph + " " + l.Words }

// Markdown escapes text for it: it stands in one line, as it is.
func Markdown(s string) string { return md(s) }

// md escapes text for Markdown: it stands in one line, as it is.
func md(s string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(Clean(s)), " ") {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case strings.ContainsRune("\\`*_{}[]<>()#+!|~:@$", r):
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Fence shows a command. It is one line, so it cannot close the fence.
func Fence(cmd string) string {
	return "```sh\n" + strings.Join(strings.Fields(Clean(cmd)), " ") + "\n```\n"
}
