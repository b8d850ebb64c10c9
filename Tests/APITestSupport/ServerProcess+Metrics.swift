import Foundation
import ProcessTestSupport
package import Testing

extension ServerProcess {
    /// Returns the peak resident memory of the process in bytes (`VmHWM` in proc(5)).
    package func peakMemory() throws -> Int {
        let status = try String(contentsOfFile: "/proc/\(child.identifier)/status", encoding: .utf8)
        guard let line = status.split(separator: "\n").first(where: { $0.hasPrefix("VmHWM:") }),
            let kibibytes = line.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap({ Int($0) })
        else { throw TestFailure("there is no VmHWM of the server") }
        return kibibytes << 10
    }

    /// Returns user and system time in hundredths of a second (`utime` and `stime` in proc(5)).
    package func processorTicks() throws -> Int {
        let fields =
            try String(contentsOfFile: "/proc/\(child.identifier)/stat", encoding: .utf8)
            .split(separator: ")").last?.split(separator: " ") ?? []
        guard fields.count > 12, let user = Int(fields[11]), let system = Int(fields[12]) else {
            throw TestFailure("there are no times of the server")
        }
        return user + system
    }

    package func openDescriptors() throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/\(child.identifier)/fd").count
    }

    /// Expects that the process has not grown much since a former ``peakMemory()``; not with sanitizers, which need memory
    /// of their own.
    package func expectMemory(
        since former: Int, lessThan mebibytes: Int, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        guard getenv("ASAN_OPTIONS") == nil, getenv("TSAN_OPTIONS") == nil else { return }
        let growth = (try peakMemory() - former) >> 20
        #expect(growth < mebibytes, "\(growth) MiB", sourceLocation: sourceLocation)
    }

    /// Returns a metric without labels from `GET /metrics`.
    package func metric(_ name: String) throws -> Int {
        let line = try request("GET", "/metrics").text.split(separator: "\n").first { $0.hasPrefix("\(name) ") }
        guard let number = line?.split(separator: " ").last.flatMap({ Double($0) }) else {
            throw TestFailure("there is no metric \(name)")
        }
        return Int(number)
    }

    /// Waits up to a minute for the server to be ready.
    package func becomesReady() throws -> Bool {
        let deadline = ContinuousClock.now + .seconds(60)
        while .now < deadline {
            if try request("GET", "/readyz").status == 200 { return true }
        }
        return false
    }

    /// Waits up to a minute for a metric to reach a value, and returns the last value.
    package func awaitMetric(_ name: String, _ isReached: (Int) -> Bool) throws -> Int {
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            let value = try metric(name)
            if isReached(value) || .now > deadline { return value }
        }
    }
}
