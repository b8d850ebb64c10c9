import FoundationEssentials
import JSON
import Logging
import Tracing

/// An OpenTelemetry collector, which receives spans by OTLP over HTTP.
struct TraceCollector: Sendable {
    /// The address to which spans are posted.
    let url: String
    /// The name of the service in traces.
    var service = "holdfast"
    /// The share of traces that are recorded, 0 to 1. It applies to traces that begin at this server.
    var sample = 1.0
    /// The file with additional header fields, which may be secret. It is read for each batch, so it can be replaced.
    var headersFile: String?

    /// - Parameter url: the address of the collector. Without a path, the path of OTLP is added.
    /// - Throws: ``Failure`` if the address is invalid.
    init(url: String) throws(Failure) {
        let target = URL(string: url, encodingInvalidCharacters: false)
        guard let target, ["http", "https"].contains(target.scheme), let host = target.host, !host.isEmpty,
            target.user == nil, target.password == nil, target.fragment == nil
        else {
            throw Failure(
                "--traces-endpoint must be an http or https URL without user and password, such as "
                    + "http://localhost:4318/v1/traces; got '\(url)'")
        }
        let hasPath = !target.path.isEmpty && target.path != "/" || target.query != nil
        self.url = hasPath ? url : (url.hasSuffix("/") ? String(url.dropLast()) : url) + "/v1/traces"
    }

    /// Returns a tracer that sends its spans to the collector.
    func tracer(_ logger: Logger) -> Tracer {
        Tracer(
            sample: sample, resource: [("service.name", service), ("service.version", Holdfast.version)],
            send: { [url, headersFile] body, seconds in Self.send(body, to: url, headersFile, seconds: seconds) },
            report: { [url] reason in
                if let reason {
                    logger.warning("spans cannot be sent", metadata: ["collector": "\(url)", "reason": "\(reason)"])
                } else {
                    logger.notice("the collector takes spans again", metadata: ["collector": "\(url)"])
                }
            })
    }

    /// Reads header fields, one `Name: value` per line.
    ///
    /// - Throws: ``Failure``, which does not quote values.
    static func headers(in path: String) throws(Failure) -> [String] {
        let lines = try SecretFile(path: path, "the file of headers", of: "lines 'Name: value'").text().split(
            whereSeparator: \.isNewline)
        for (index, line) in lines.enumerated() {
            let name = line.prefix { $0 != ":" }
            let isName = !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
            guard isName, line.count > name.count, line.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }) else {
                throw Failure("line \(index + 1) of the file of headers \(path) must be 'Name: value'; it is not")
            }
        }
        return lines.map(String.init)
    }

    /// Posts spans to the collector, and waits for its response.
    private static func send(
        _ body: [UInt8], to url: String, _ headersFile: String?, seconds: Int
    ) -> Tracer.Delivery {
        let response: HTTPExchange
        do throws(Failure) {
            let headers = if let headersFile { try Self.headers(in: headersFile) } else { [String]() }
            response = try HTTPExchange(
                "POST", url, fields: ["Content-Type: application/json", "Expect:"] + headers, body: body,
                seconds: seconds, server: url)
        } catch {
            return .failed("\(error)")
        }
        switch response.status {
        case 200..<300:
            let success = (try? JSONParser().parse(response.body))?.object?["partialSuccess"]?.object
            // A 64-bit integer, which the JSON mapping of Protocol Buffers encodes as a string.
            let rejected = success?["rejectedSpans"]
            return .taken(rejected: rejected?.integer.map { Int($0) } ?? rejected?.string.flatMap { Int($0) } ?? 0)
        // The statuses that OTLP defines as retryable.
        case 429, 502, 503, 504: return .failed("it responds \(response.status)")
        default: return .refused("it responds \(response.status)")
        }
    }
}
