import Bucketing
import Definitions
import JSON
import Logging
import Storage

/// A datafile from the command line that cannot be activated.
public struct DatafileLoadError: Error, CustomStringConvertible {
    public let description: String
    /// Whether the store has failed. Otherwise the datafile is invalid.
    public let isOfStore: Bool

    public init(_ description: String, isOfStore: Bool = false) {
        self.description = description
        self.isOfStore = isOfStore
    }
}

/// A summary of a datafile, for `holdfast datafile check`.
public struct DatafileSummary: Sendable {
    let datafile: Datafile

    public var sdkKey: String? { datafile.sdkKey }
    public var revision: String { datafile.revision }
    public var experiments: Int { datafile.experiments.count }
    public var flags: Int { datafile.flags.count }
    public var audiences: Int { datafile.audiences.count }
    /// See ``Bucketing/Datafile/warnings``.
    public var warnings: [String] { datafile.warnings }

    /// Reads a datafile as the server would.
    ///
    /// - Throws: ``DatafileLoadError`` with one line for each fault.
    public init(checking content: [UInt8]) throws(DatafileLoadError) {
        do throws(CoreError) {
            datafile = try Datafile.accepted(content)
        } catch {
            let lines = error.faults.prefix(100).map { "\($0.pointer): \($0.reason)" }
            throw DatafileLoadError(lines.isEmpty ? error.detail : lines.joined(separator: "\n"))
        }
    }
}

extension ProjectCatalog {
    /// Activates a datafile, and creates the project if it does not exist. If the last start has activated the same
    /// datafile and it was replaced since, nothing changes, so that a restart does not undo changes made over HTTP.
    /// Blocks until the datafile is stored and this catalog has it.
    ///
    /// - Parameters:
    ///   - name: the SDK key of the project if the datafile has none.
    ///   - sharing: whether the datafile may have ids of other projects' experiments.
    /// - Returns: the SDK key of the project.
    /// - Throws: ``DatafileLoadError``
    public func load(_ content: [UInt8], named name: String, sharing: SharePolicy) throws(DatafileLoadError) -> String {
        let (given, file) = (try DatafileSummary(checking: content), content)
        let sdkKey: String
        do throws(CoreError) {
            sdkKey = try SDKKey.check(given.sdkKey ?? name)
        } catch {
            throw DatafileLoadError(error.detail)
        }
        let former = snapshot().projects[sdkKey]
        let (content, compiled) = try Self.completed(content, given.datafile, former?.datafile.assignmentLifetime)
        let datafile = compiled.datafile
        if let known = former {
            if known.content == content { return sdkKey }
            // The stored datafile has the lifetime of assignments that the project had then.
            if let last = try lastLoaded(sdkKey)?.content,
                try last
                    == Self.completed(file, given.datafile, ProjectDefinitions.assignmentLifetime(in: last)).content
            {
                logger.warning(
                    "the datafile is the one activated last time, and another was activated since; the other stays active",
                    metadata: ["sdk_key": "\(sdkKey)", "revision": "\(known.datafile.revision)"])
                return sdkKey
            }
        }
        var isStored = false
        while !isStored {
            let newest = try newest(for: datafile, sdkKey, sharing)
            do throws(StorageError) {
                // Another server may store a datafile with the same ids meanwhile.
                isStored =
                    try definitions.wait { session, done in
                        session.write(
                            .putDatafile(
                                .whole(content), sdkKey: sdkKey, revision: datafile.revision,
                                allocations: AllocationRules.allocations(in: datafile),
                                statuses: StatusRules.statuses(in: datafile),
                                series: compiled.definitions.series, replacing: nil, among: newest, makesProject: true,
                                notes: [AuditNote(.datafilePut, of: sdkKey)], by: .processUser), done)
                    } != nil
                try updateAndWait()
            } catch {
                throw DatafileLoadError("it could not be stored: \(error)", isOfStore: error != .readOnly)
            }
        }
        return sdkKey
    }

    /// Adds the lifetime of the project's assignments to a datafile that has none.
    private static func completed(
        _ content: [UInt8], _ datafile: Datafile, _ lifetime: AssignmentLifetime?
    ) throws(DatafileLoadError) -> (content: [UInt8], compiled: CompiledDefinitions) {
        do throws(CoreError) {
            let compiled = CompiledDefinitions(datafile)
            return try compiled.completed(with: lifetime).map { ($0.definitions.content, $0) } ?? (content, compiled)
        } catch {
            throw DatafileLoadError(error.detail)
        }
    }

    /// See ``Snapshot/checkIDs(of:replacing:in:_:)``.
    private func newest(
        for datafile: Datafile, _ sdkKey: String, _ sharing: SharePolicy
    ) throws(DatafileLoadError) -> Int64? {
        let snapshot = snapshot()
        do throws(CoreError) {
            return try snapshot.checkIDs(
                of: datafile, replacing: snapshot.projects[sdkKey]?.datafile, in: sdkKey, sharing)
        } catch {
            throw DatafileLoadError(
                error.detail.replacing("repeat the request with ?share=allow", with: "start with --share-ids"))
        }
    }

    private func lastLoaded(_ sdkKey: String) throws(DatafileLoadError) -> StoredDatafile? {
        do throws(StorageError) {
            return try updates.wait { session, done in
                session.read(.lastDatafile(sdkKey: sdkKey, by: .processUser), done)
            }
        } catch {
            throw DatafileLoadError("the stored datafile could not be read: \(error)", isOfStore: true)
        }
    }
}
