import ArgumentParser
import Definitions
import HoldfastCore

/// The formats that can be imported.
enum ImportSource: String, CaseIterable, ExpressibleByArgument {
    case profiles, redis, csv, cassandra, growthbook

    /// The names of all formats, for the help.
    static var names: String {
        let names = allCases.map(\.rawValue)
        return names.dropLast().joined(separator: ", ") + " or " + names[names.count - 1]
    }

    /// The word for the elements of the format in messages.
    var elements: String {
        switch self {
        case .profiles: "lines"
        case .redis: "keys"
        case .csv, .cassandra: "records"
        case .growthbook: "documents"
        }
    }
}

/// Options that only apply to some formats.
struct ImportFormatOptions: ParsableArguments {
    @Option(help: .init("csv, cassandra: the names of the columns, if the file has no header.", valueName: "list"))
    var header: String?

    @Option(
        help: .init(
            "csv, cassandra: the column of a value, such as user_id=uid; may be repeated.", valueName: "name=column"))
    var column: [String] = []

    @Option(help: .init("csv: the separator of fields: a character, or 'tab' (default: ,).", valueName: "character"))
    var delimiter: String?

    @Option(help: .init("growthbook: the attribute that has the user ids (default: id).", valueName: "name"))
    var attribute: String?

    @Option(help: .init("csv, cassandra, growthbook: the project of the experiments.", valueName: "key"))
    var sdkKey: String?

    /// - Throws: ``Failure`` if an option does not apply to the format.
    func check(for source: ImportSource) throws {
        let tables: [ImportSource] = [.csv, .cassandra]
        if header != nil { try expect(source, among: tables, for: "header") }
        if !column.isEmpty { try expect(source, among: tables, for: "column") }
        if delimiter != nil { try expect(source, among: [.csv], for: "delimiter") }
        if attribute != nil { try expect(source, among: [.growthbook], for: "attribute") }
        if sdkKey != nil { try expect(source, among: tables + [.growthbook], for: "sdk-key") }
    }

    /// Checks that a given option applies to the format.
    private func expect(_ source: ImportSource, among formats: [ImportSource], for option: String) throws {
        guard !formats.contains(source) else { return }
        let names = formats.map { "--from \($0.rawValue)" }.joined(separator: " or ")
        throw Failure("--\(option) must come with \(names); got --from \(source.rawValue)")
    }

    /// Returns the reader of a format, with the options that apply to it.
    ///
    /// - Throws: ``Failure`` if the value of an option is invalid.
    func reader(of source: ImportSource, _ catalog: ProjectCatalog) throws -> any ProfileReader {
        do throws(CoreError) {
            switch source {
            case .profiles: return ProfileLines()
            case .redis: return RedisProfiles()
            case .csv, .cassandra:
                return try DelimitedProfiles(try delimitedOptions(of: source), names: try names(catalog))
            case .growthbook:
                return GrowthBookProfiles(names: try names(catalog), attribute: attribute ?? "id")
            }
        } catch {
            throw Failure(error.description)
        }
    }

    /// Returns the names of the experiments, to which the files of other systems refer.
    private func names(_ catalog: ProjectCatalog) throws(CoreError) -> ExperimentNames {
        try ExperimentNames(catalog.snapshot(), sdkKey: sdkKey)
    }

    /// Returns the options for the reader of delimited files.
    private func delimitedOptions(of source: ImportSource) throws(CoreError) -> DelimitedProfiles.Options {
        var options = DelimitedProfiles.Options()
        options.escapesByBackslash = source == .cassandra
        options.header = header?.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        if let delimiter {
            let text = delimiter == "tab" ? "\t" : delimiter
            guard let byte = text.utf8.first, text.utf8.count == 1, !"\"\r\n\\".utf8.contains(byte) else {
                throw CoreError(
                    .invalid,
                    "--delimiter must be one ASCII character, not a quotation mark, or 'tab'; got '\(delimiter)'")
            }
            options.delimiter = byte
        }
        for column in column {
            let parts = column.split(separator: "=", maxSplits: 1).map(String.init)
            guard parts.count == 2, DelimitedProfiles.knownColumns.contains(parts[0]) else {
                let known = DelimitedProfiles.knownColumns.joined(separator: ", ")
                throw CoreError(
                    .invalid, "--column must be NAME=COLUMN with one of the names \(known); got '\(column)'")
            }
            options.columns[parts[0]] = parts[1]
        }
        return options
    }
}
