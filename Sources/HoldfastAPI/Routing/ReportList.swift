import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON

/// The body of a request with one report of an app, such as an event or a login, or with an array of reports.
///
/// The response to an array has a result for each report, so an invalid report does not affect the others. A single
/// report that is invalid makes the whole request fail.
struct ReportList: Sendable {
    /// The result of a valid report.
    enum Status: String, CaseIterable {
        case stored, repeated
    }

    let elements: [JSONValue]
    /// Whether the body is an array.
    let isArray: Bool

    /// - Throws: 400 if the body is not JSON or has too many elements.
    init(_ request: borrowing Request, limit: Int) throws(CoreError) {
        let value = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        elements = value.array ?? [value]
        isArray = value.array != nil
        guard elements.count <= limit else {
            throw CoreError(.invalid, "the array must have at most \(limit) elements; got \(elements.count)", at: [])
        }
    }

    /// The place of an element in the body.
    func place(of index: Int) -> JSONPointer { isArray ? JSONPointer().appending(index) : [] }

    /// Parses each element.
    ///
    /// - Throws: the error of a report that is not in an array.
    func parse<Report>(
        _ parse: (JSONValue, JSONPointer) throws(CoreError) -> Report
    ) throws(CoreError) -> [Result<Report, CoreError>] {
        guard isArray else { return [.success(try parse(elements[0], []))] }
        return elements.indices.map { index in
            do throws(CoreError) {
                return .success(try parse(elements[index], place(of: index)))
            } catch {
                return .failure(error)
            }
        }
    }

    /// Processes each element like ``Call/results(of:_:_:)``.
    ///
    /// - Throws: the error of a report that is not in an array.
    func map<Value: Sendable>(
        _ call: Call, _ projects: ProjectView,
        _ work: @escaping (JSONValue, JSONPointer, Call) async throws -> Value
    ) async throws -> [Result<Value, any Error>] {
        guard isArray else { return [.success(try await work(elements[0], [], call))] }
        return try await call.results(of: elements.indices, projects) { index, call in
            try await work(elements[index], place(of: index), call)
        }
    }

    /// Returns the response with the results of the reports, in order.
    ///
    /// - Throws: the error of a report that is not in an array.
    func response(
        _ items: [(id: Identifier?, outcome: Result<Status, EventRefusal>)]
    ) throws(CoreError) -> Response {
        if !isArray, let item = items.first, case .failure(let refusal) = item.outcome { throw refusal.error }
        var writer = JSONWriter()
        if isArray {
            writer.beginObject()
            writer.key("results")
            writer.beginArray()
        }
        for (index, item) in items.enumerated() {
            writer.beginObject()
            if isArray { writer.member("index", index) }
            if let id = item.id { writer.member("id", id.string) }
            switch item.outcome {
            case .success(let status):
                writer.member("status", status.rawValue)
            case .failure(let refusal):
                writer.member("status", "refused")
                writer.member("retriable", refusal.isRetriable)
                writer.key("problem")
                Problem(refusal.error).append(to: &writer)
            }
            writer.endObject()
        }
        if isArray {
            writer.endArray()
            writer.endObject()
        }
        return .json(writer.finish())
    }
}
