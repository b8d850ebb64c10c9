/// A parsed text in the subset of Markdown that the manual's articles use: headings, paragraphs, lists, tables, code,
/// notes and images. Paragraphs may have code, emphasis and links.
///
/// `Reader` splits the lines into blocks, and `InlineScanner` reads the text within a block. Anything outside of the
/// subset is an error, so that no article is shown wrongly. A test parses all articles.
struct Markdown {
    indirect enum Block: Equatable {
        /// `level` is 1 to 4.
        case heading(level: Int, [Inline])
        case paragraph([Inline])
        /// Each item is an array of blocks.
        case list(isNumbered: Bool, [[Block]])
        /// Rows of cells; the first row is the header.
        case table([[[Inline]]])
        case code(String)
        case note([Inline])
        case image(alternative: String, file: String)
    }

    indirect enum Inline: Equatable {
        case text(String)
        case code(String)
        case strong([Inline])
        case emphasis([Inline])
        case link([Inline], target: String)
    }

    /// The error for a construct outside of the subset.
    struct Unsupported: Error, CustomStringConvertible {
        let line: Int
        let found: String

        var description: String {
            "line \(line) must be a heading, paragraph, list, table, code block, note or image; got \(found)"
        }
    }

    let blocks: [Block]

    /// - Throws: ``Unsupported`` with the line of a construct outside of the subset.
    init(_ text: String) throws {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        var reader = Reader(lines: lines[...].enumerated().map { Line(number: $0.offset + 1, text: $0.element) })
        blocks = try reader.blocks()
    }
}

extension Markdown {
    /// A line of the text with its number, for errors.
    private struct Line {
        let number: Int
        var text: Substring

        var indentation: Int { text.prefix { $0 == " " }.count }
        var isBlank: Bool { text.allSatisfy { $0 == " " } }

        func outdented(by count: Int) -> Line {
            Line(number: number, text: text.dropFirst(min(count, indentation)))
        }

        /// The mark of a list item, `- ` or `1. `, by its length; `nil` if the line begins no item.
        var mark: (isNumbered: Bool, length: Int)? {
            if text.hasPrefix("- ") { return (false, 2) }
            let digits = text.prefix { $0.isASCII && $0.isNumber }.count
            return digits > 0 && text.dropFirst(digits).hasPrefix(". ") ? (true, digits + 2) : nil
        }

        /// Whether the line begins a block that ends a paragraph.
        var beginsBlock: Bool {
            isBlank || mark != nil || ["#", "|", "```", "> ", "!["].contains { text.hasPrefix($0) }
        }
    }

    /// Reads the lines of an article, or of an item of a list.
    private struct Reader {
        let lines: [Line]
        private var position = 0

        init(lines: [Line]) { self.lines = lines }

        private var next: Line? { position < lines.count ? lines[position] : nil }

        /// Reads lines while a condition is true.
        private mutating func take(while condition: (Line) -> Bool) -> [Line] {
            let taken = lines[position...].prefix(while: condition)
            position += taken.count
            return Array(taken)
        }

        /// Reads all blocks.
        mutating func blocks() throws -> [Block] {
            var blocks: [Block] = []
            while let line = next {
                if line.isBlank {
                    position += 1
                } else if line.text.hasPrefix("```") {
                    blocks.append(try code())
                } else if line.text.hasPrefix("#") {
                    blocks.append(try heading(line))
                } else if line.text.hasPrefix("|") {
                    blocks.append(try table())
                } else if line.text.hasPrefix("> ") {
                    let quoted = take { $0.text.hasPrefix("> ") }
                    blocks.append(
                        .note(try inlines(quoted.map { Line(number: $0.number, text: $0.text.dropFirst(2)) })))
                } else if line.text.hasPrefix("![") {
                    blocks.append(try image(line))
                } else if let mark = line.mark {
                    blocks.append(try list(isNumbered: mark.isNumbered))
                } else {
                    blocks.append(try paragraph(line))
                }
            }
            return blocks
        }

        private mutating func heading(_ line: Line) throws -> Block {
            let level = line.text.prefix { $0 == "#" }.count
            guard level <= 4, line.text.dropFirst(level).hasPrefix(" ") else { throw unsupported(line) }
            position += 1
            return .heading(
                level: level, try inlines([Line(number: line.number, text: line.text.dropFirst(level + 1))]))
        }

        private mutating func code() throws -> Block {
            let first = lines[position]
            position += 1
            let body = take { !$0.text.hasPrefix("```") }
            guard next?.text == "```" else { throw unsupported(first, "a code block without an end") }
            position += 1
            return .code(body.map { String($0.text) }.joined(separator: "\n"))
        }

        /// Reads a table: a header, a line of dashes, and further rows with as many cells.
        private mutating func table() throws -> Block {
            let rows = take { $0.text.hasPrefix("|") }
            guard rows.count > 1, rows[1].text.allSatisfy({ "|- ".contains($0) }) else {
                throw unsupported(rows[0], "a table without a line of dashes below its header")
            }
            let cells = try rows.enumerated().filter { $0.offset != 1 }.map { try self.cells(of: $0.element) }
            for (row, line) in zip(cells, [rows[0]] + rows.dropFirst(2)) where row.count != cells[0].count {
                throw unsupported(line, "\(row.count) cells in a table with \(cells[0].count) columns")
            }
            return .table(cells)
        }

        /// Splits a row into cells.
        private func cells(of line: Line) throws -> [[Inline]] {
            var cells: [String] = [""]
            var isEscaped = false
            guard line.text.count > 1, line.text.hasSuffix("|") else { throw unsupported(line) }
            for character in line.text.dropFirst().dropLast() {
                if character == "|", !isEscaped {
                    cells.append("")
                } else {
                    // A bar in a cell is escaped by a backslash, also in code.
                    if character == "|" { cells[cells.count - 1].removeLast() }
                    cells[cells.count - 1].append(character)
                }
                isEscaped = character == "\\" && !isEscaped
            }
            return try cells.map { cell in
                let trimmed = cell.drop { $0 == " " }
                let length = trimmed.count - trimmed.reversed().prefix { $0 == " " }.count
                return try inlines([Line(number: line.number, text: trimmed.prefix(length))])
            }
        }

        private mutating func image(_ line: Line) throws -> Block {
            guard let match = line.text.wholeMatch(of: #/!\[([^\]]*)\]\(([\w.\/-]+\.png)\)/#) else {
                throw unsupported(line)
            }
            position += 1
            return .image(alternative: String(match.output.1), file: String(match.output.2))
        }

        /// Reads a list. The lines of an item are indented by the length of its mark.
        private mutating func list(isNumbered: Bool) throws -> Block {
            var items: [[Block]] = []
            while let line = next, let mark = line.mark, mark.isNumbered == isNumbered {
                position += 1
                let first = Line(number: line.number, text: line.text.dropFirst(mark.length))
                var rest = take { $0.isBlank || $0.indentation >= mark.length }
                // Blank lines belong to the item only if the item continues after them.
                while rest.last?.isBlank == true { rest.removeLast(); position -= 1 }
                var reader = Reader(lines: [first] + rest.map { $0.outdented(by: mark.length) })
                items.append(try reader.blocks())
                let blanks = take(while: \.isBlank).count
                // Blank lines after the last item do not belong to the list.
                if next?.mark?.isNumbered != isNumbered { position -= blanks }
            }
            return .list(isNumbered: isNumbered, items)
        }

        /// Reads the lines up to the next block.
        private mutating func paragraph(_ first: Line) throws -> Block {
            position += 1
            let rest = take { !$0.beginsBlock }
            for line in [first] + rest {
                let text = line.text
                let isUnsupported =
                    text.hasPrefix(" ") || text.hasSuffix("  ") || text.hasPrefix(">")
                    || ["* ", "+ ", "---", "===", "***", "~~~", "@", "<", ":::", "[^"].contains { text.hasPrefix($0) }
                if isUnsupported { throw unsupported(line) }
            }
            return .paragraph(try inlines([first] + rest))
        }

        private func unsupported(_ line: Line, _ found: String? = nil) -> Unsupported {
            Unsupported(line: line.number, found: found ?? "'\(line.text.prefix(60))'")
        }

        /// Reads the text of a block.
        private func inlines(_ lines: [Line]) throws -> [Inline] {
            var scanner = InlineScanner(text: Array(lines.map(\.text).joined(separator: "\n")))
            do {
                return try scanner.inlines(until: nil)
            } catch let unsupported as InlineScanner.Unsupported {
                throw Unsupported(line: lines.first?.number ?? 0, found: unsupported.text)
            }
        }
    }
}

/// Reads the text of a paragraph, heading or cell: code, emphasis and links.
private struct InlineScanner {
    /// The error for a construct outside of the subset.
    struct Unsupported: Error { let text: String }

    let text: [Character]
    private var position = 0

    init(text: [Character]) { self.text = text }

    /// Returns the character at an offset from the position; `nil` beyond the end.
    private func character(_ offset: Int = 0) -> Character? {
        text.indices.contains(position + offset) ? text[position + offset] : nil
    }

    /// Reads up to a mark and consumes it; without a mark, up to the end.
    mutating func inlines(until mark: [Character]?) throws -> [Markdown.Inline] {
        var inlines: [Markdown.Inline] = []
        var plain = ""
        func finishPlain() {
            if !plain.isEmpty { inlines.append(.text(plain)) }
            plain = ""
        }
        while let next = character() {
            if let mark, text[position...].starts(with: mark) {
                position += mark.count
                finishPlain()
                return inlines
            }
            switch next {
            case "`":
                finishPlain()
                inlines.append(.code(try code()))
            case "*":
                finishPlain()
                let mark: [Character] = character(1) == "*" ? ["*", "*"] : ["*"]
                position += mark.count
                let inner = try self.inlines(until: mark)
                inlines.append(mark.count == 2 ? .strong(inner) : .emphasis(inner))
            case "[":
                finishPlain()
                inlines.append(try link())
            case "\\", "<", "~":
                // `<` before a space or a number is a comparison.
                guard next == "<", character(1).map({ $0 == " " || $0.isNumber }) ?? true else {
                    throw Unsupported(text: "'\(String(text[position...].prefix(30)))' outside code")
                }
                plain.append(next)
                position += 1
            default:
                plain.append(next == "\n" ? " " : next)
                position += 1
            }
        }
        if let mark { throw Unsupported(text: "'\(String(mark))' without its end") }
        finishPlain()
        return inlines
    }

    /// Reads code between two equal groups of backquotes.
    private mutating func code() throws -> String {
        let mark = Array(text[position...].prefix { $0 == "`" })
        var end = position + mark.count
        while end < text.count {
            let closing = text[end...].prefix { $0 == "`" }
            if closing.count == mark.count { break }
            end += 1
        }
        guard end < text.count else { throw Unsupported(text: "a backquote without its end") }
        defer { position = end + mark.count }
        let code = text[(position + mark.count)..<end].map { $0 == "\n" ? " " : $0 }
        // A space on both sides lets code begin with a backquote.
        return code.count > 2 && code.first == " " && code.last == " "
            ? String(code[1..<(code.count - 1)]) : String(code)
    }

    /// Reads `[LABEL](TARGET)`.
    private mutating func link() throws -> Markdown.Inline {
        let start = position
        position += 1
        let label = try inlines(until: ["]"])
        guard character() == "(", let end = text[position...].firstIndex(of: ")") else {
            throw Unsupported(text: "'\(String(text[start...].prefix(30)))', which is no link")
        }
        let target = String(text[(position + 1)..<end])
        position = end + 1
        guard !target.contains(where: \.isWhitespace), !label.isEmpty else {
            throw Unsupported(text: "a link to '\(target)'")
        }
        return .link(label, target: target)
    }
}
