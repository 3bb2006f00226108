# A server that loads its application before it forks. Prints a digest of what its four workers answer to 300 requests each, and on standard error what memory each has for
# itself then, and what the master has, in KiB.
require "digest/sha2"
require "json"

random = Random.new(1)
application = (0...60_000).map do |number|
  tags = (0...random.rand(1..8)).map { |tag| "tag#{tag}" * random.rand(1..20) }
  { "id" => number, "name" => "n" * random.rand(10..400), "tags" => tags }
end
application.reject!.with_index { |_, place| place % 3 == 0 }
GC.start

def kib(name) = File.read("/proc/self/smaps_rollup")[/#{name}:\s+(\d+)/, 1].to_i

told, tell = IO.pipe
workers = (0...4).map do |worker|
  fork do
    random, digest = Random.new(worker), Digest::SHA256.new
    300.times do
      people = (0...60).map { |number| { "id" => number, "note" => "x" * random.rand(10..900) } }
      page = +""
      JSON.parse(JSON.generate(people)).each { |person| page << person["note"][0, 100] << person["id"].to_s }
      digest << page
    end
    tell.puts "#{digest.hexdigest} #{kib("Private_Dirty")}"
    sleep
  end
end
answers = workers.map { told.gets.split }
puts answers.map(&:first).sort
warn "a worker #{answers.sum { |answer| answer.last.to_i } / workers.size}, the master #{kib("Rss")}"
workers.each { |worker| Process.kill(:TERM, worker) }
Process.waitall
