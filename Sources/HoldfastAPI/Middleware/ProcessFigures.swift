import Glibc

/// What the kernel says of this process (proc(5)); zero where it cannot be read.
struct ProcessFigures {
    var residentBytes = 0
    var openDescriptors = 0
    var maximumDescriptors = 0
    var cpuSeconds = 0.0

    static func now() -> ProcessFigures {
        var figures = ProcessFigures()
        if let text = read("/proc/self/statm"), let pages = text.split(separator: " ").dropFirst().first.flatMap({ Int($0) }) {
            figures.residentBytes = pages * Int(sysconf(Int32(_SC_PAGESIZE)))
        }
        figures.openDescriptors = countDescriptors()
        var limit = rlimit()
        if getrlimit(__rlimit_resource_t(UInt32(RLIMIT_NOFILE.rawValue)), &limit) == 0 {
            figures.maximumDescriptors = Int(clamping: limit.rlim_cur)
        }
        var usage = rusage()
        if getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage) == 0 {
            figures.cpuSeconds = [usage.ru_utime, usage.ru_stime].reduce(0) {
                $0 + Double($1.tv_sec) + Double($1.tv_usec) / 1e6
            }
        }
        return figures
    }

    private static func countDescriptors() -> Int {
        guard let directory = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(directory) }
        var count = -3  // ".", ".." and the descriptor of this very look
        while readdir(directory) != nil { count += 1 }
        return max(0, count)
    }

    private static func read(_ path: String) -> String? {
        guard let file = fopen(path, "r") else { return nil }
        defer { fclose(file) }
        var buffer = [UInt8](repeating: 0, count: 256)
        let count = fread(&buffer, 1, buffer.count, file)
        return String(decoding: buffer.prefix(count), as: UTF8.self)
    }
}
