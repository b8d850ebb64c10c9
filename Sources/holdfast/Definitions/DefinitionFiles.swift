import Definitions
import FoundationEssentials
import HoldfastCore
import JSON

/// Definitions in files: YAML with any number of documents, or JSON. Each document has lists in the format of `GET
/// /v1/definitions`.
///
/// All documents are joined into one object, as if they were one file. The place of each element is kept, so that a
/// fault that is found later, also by the server, is shown with its file and line.
struct DefinitionFiles {
    /// The definitions of all files together.
    private(set) var object = JSONObject()
    /// The faults of the files themselves, each with its place.
    private(set) var problems: [String] = []
    /// The places of the elements of ``object``, by their indices.
    private var origins: [DefinitionSet.Kind: [Origin]] = [:]
    /// The places of the elements by their keys. A second element with the same key is a problem.
    private var originsByKey: [DefinitionSet.Kind: [String: Origin]] = [:]
    /// The place of the project's description.
    private var project: Origin?

    /// The file and place of an element.
    private struct Origin {
        let file: String
        let document: YAMLDocument
        /// The place in the document.
        let place: JSONPointer

        /// Returns `FILE:LINE` of a member of the element. If the line of the member is unknown, the nearest value
        /// around it counts.
        func description(_ rest: JSONPointer = []) -> String {
            var pointer = place.appending(rest).string
            while document.lines[pointer] == nil, let slash = pointer.lastIndex(of: "/") {
                pointer = String(pointer[..<slash])
            }
            return document.lines[pointer].map { "\(file):\($0)" } ?? file
        }
    }

    /// Reads files and directories, which are read recursively, in the order of their names.
    ///
    /// - Throws: ``Failure`` if a file cannot be read.
    init(_ paths: [String]) throws {
        for path in paths {
            let files = try Self.files(at: path)
            guard !files.isEmpty else { throw Failure("\(path) has no file *.yaml, *.yml or *.json") }
            for file in files { try read(file) }
        }
    }

    /// Returns the definitions in the format of the API.
    ///
    /// - Throws: ``Failure`` with all faults of the files.
    func set() throws -> DefinitionSet {
        var all = problems
        do throws(CoreError) {
            let set = try DefinitionSet(.object(object))
            if all.isEmpty { return set }
        } catch {
            all += describe(error.faults.isEmpty ? [JSONFault(pointer: [], reason: error.detail)] : error.faults)
        }
        throw DefinitionFaults(all)
    }

    /// Describes faults with their places in files.
    func describe(_ faults: [JSONFault]) -> [String] {
        faults.map { fault in
            let parts = fault.pointer.string.split(separator: "/", maxSplits: 2).map(String.init)
            if parts.first == DefinitionSet.projectMember, let project {
                let rest = JSONPointer(string: String(fault.pointer.string.dropFirst(1 + parts[0].count)))
                return "\(project.description(rest)): \(fault.pointer): \(fault.reason)"
            }
            guard parts.count >= 2, let kind = DefinitionSet.Kind(rawValue: parts[0]), let index = Int(parts[1]),
                let origin = origins[kind].flatMap({ $0.indices.contains(index) ? $0[index] : nil })
            else { return fault.description }
            let rest = parts.count > 2 ? JSONPointer(string: "/" + parts[2]) : []
            return "\(origin.description(rest)): \(origin.place.appending(rest)): \(fault.reason)"
        }
    }

    // MARK: Reading

    /// Returns the files of a directory and of the directories in it. If the path is that of a file, returns only this
    /// file.
    private static func files(at path: String) throws -> [String] {
        guard FileManager.default.fileExists(atPath: path) else { throw Failure("there is no file \(path)") }
        guard FileManager.default.directoryExists(atPath: path) else { return [path] }
        let names: [String]
        do {
            names = try FileManager.default.contentsOfDirectory(atPath: path)
        } catch {
            throw Failure("the directory \(path) cannot be read: \(error)")
        }
        return try names.filter { !$0.hasPrefix(".") }.sorted().flatMap { name -> [String] in
            let file = path.hasSuffix("/") ? path + name : "\(path)/\(name)"
            if FileManager.default.directoryExists(atPath: file) { return try files(at: file) }
            return [".yaml", ".yml", ".json"].contains { name.hasSuffix($0) } ? [file] : []
        }
    }

    /// Adds the documents of a file. A file that cannot be parsed is a problem, and does not end the reading.
    private mutating func read(_ file: String) throws {
        let content: [UInt8]
        do {
            content = try OpenFile.content(of: file)
        } catch {
            throw Failure("\(file) cannot be read: \(error)")
        }
        do {
            for document in try Self.documents(content, isJSON: file.hasSuffix(".json")) { add(document, of: file) }
        } catch let error as YAMLError {
            problems.append("\(file):\(error.line): \(error.reason)")
        } catch let error as CoreError {
            problems.append("\(file): \(error)")
        }
    }

    /// Parses the documents of a file.
    private static func documents(_ content: [UInt8], isJSON: Bool) throws -> [YAMLDocument] {
        guard isJSON else { return try YAMLReader.documents(content) }
        // JSON is read as YAML if possible, because the YAML reader determines the lines of values.
        let value = try JSONInput.parse(content)
        return [YAMLDocument(value: value, lines: (try? YAMLReader.documents(content))?.first?.lines ?? [:])]
    }

    /// Adds the definitions of a document.
    private mutating func add(_ document: YAMLDocument, of file: String) {
        // The document is empty, for example between two lines `---`.
        if document.value.isNull { return }
        let lists: JSONObject
        do throws(CoreError) {
            lists = try document.value.object("definitions", knowing: DefinitionSet.members)
        } catch {
            let origin = Origin(file: file, document: document, place: [])
            return problems.append("\(origin.description(error.pointer ?? [])): \(error)")
        }
        if let value = lists[DefinitionSet.projectMember], !value.isNull {
            let origin = Origin(file: file, document: document, place: [DefinitionSet.projectMember])
            if let project {
                problems.append(
                    "\(origin.description()): the project is described already, at \(project.description())")
            }
            project = project ?? origin
            object[DefinitionSet.projectMember] = value
        }
        for kind in DefinitionSet.Kind.allCases {
            let place = JSONPointer().appending(kind.rawValue)
            guard let list = lists[kind.rawValue], !list.isNull else { continue }
            guard let elements = list.array else {
                let origin = Origin(file: file, document: document, place: place)
                problems.append("\(origin.description()): `\(kind.rawValue)` must be an array; got \(list.kind)")
                continue
            }
            // An empty list must be present, because it has a meaning of its own.
            object[kind.rawValue] = object[kind.rawValue] ?? []
            for (index, element) in elements.enumerated() {
                add(element, kind, Origin(file: file, document: document, place: place.appending(index)))
            }
        }
    }

    /// Adds an element with its place.
    private mutating func add(_ element: JSONValue, _ kind: DefinitionSet.Kind, _ origin: Origin) {
        if let key = element.object?[kind.keyMember]?.string {
            if let first = originsByKey[kind]?[key] {
                return problems.append(
                    "\(origin.description()): the \(kind.noun) '\(key)' is defined already, at \(first.description())")
            }
            originsByKey[kind, default: [:]][key] = origin
        }
        origins[kind, default: []].append(origin)
        object[kind.rawValue] = .array((object[kind.rawValue]?.array ?? []) + [element])
    }
}

/// The faults of files, one line each.
struct DefinitionFaults: Error, CustomStringConvertible {
    let description: String

    init(_ faults: [String]) {
        let count = faults.count == 1 ? "1 fault" : "\(faults.count) faults"
        description = count + ":" + faults.map { "\n  " + $0 }.joined()
    }
}
