import Glibc

/// The metrics that the kernel keeps about this process (proc(5)). A metric that cannot be read is 0.
struct ProcessMetrics {
    /// The memory in use, in bytes.
    var residentBytes = 0
    /// The number of open file descriptors.
    var openDescriptors = 0
    /// The maximum number of open file descriptors.
    var maximumDescriptors = 0
    /// The processor time since the start of the process.
    var cpuSeconds = 0.0

    /// Reads the current metrics.
    static func now() -> ProcessMetrics {
        var metrics = ProcessMetrics()
        if let text = read("/proc/self/statm"),
            let pages = text.split(separator: " ").dropFirst().first.flatMap({ Int($0) })
        {
            metrics.residentBytes = pages * Int(sysconf(Int32(_SC_PAGESIZE)))
        }
        metrics.openDescriptors = countDescriptors()
        var limit = rlimit()
        if getrlimit(__rlimit_resource_t(UInt32(RLIMIT_NOFILE.rawValue)), &limit) == 0 {
            metrics.maximumDescriptors = Int(clamping: limit.rlim_cur)
        }
        var usage = rusage()
        if getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage) == 0 {
            metrics.cpuSeconds = seconds(usage.ru_utime) + seconds(usage.ru_stime)
        }
        return metrics
    }

    private static func seconds(_ time: timeval) -> Double {
        Double(time.tv_sec) + Double(time.tv_usec) / 1e6
    }

    private static func countDescriptors() -> Int {
        guard let directory = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(directory) }
        // Three entries do not count: ".", ".." and the descriptor by which the directory is read.
        var count = -3
        while readdir(directory) != nil { count += 1 }
        return max(0, count)
    }

    /// Returns the beginning of a small file; `nil` if it cannot be read.
    private static func read(_ path: String) -> String? {
        guard let file = fopen(path, "r") else { return nil }
        defer { fclose(file) }
        var buffer = [UInt8](repeating: 0, count: 256)
        let count = fread(&buffer, 1, buffer.count, file)
        return String(decoding: buffer.prefix(count), as: UTF8.self)
    }
}
