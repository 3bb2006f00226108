//! Servers under a load: slapd with its import, Redis, rsyslogd, MariaDB. They listen on sockets in their own folder.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::process::{Command, Stdio};

use super::Site;
use super::site::{digest, expect, read, words};
use crate::trial::{Care, Ready, Subject};

/// A path as it stands in a command for the shell.
macro_rules! shell {
    ($path:expr) => {
        shlex::try_quote(&$path.to_string_lossy()).unwrap_or_default()
    };
}

/// Entries of the directory above its people.
const ABOVE: usize = 1;
/// Every so manieth person is deleted under the load.
const DELETED: usize = 7;
/// Every so manieth order of a shop is deleted under the load, as `scripts/orders.sql` has it.
const REMOVED: usize = 5;

/// OpenLDAP's server: two clients search, then one changes and deletes, then all is read.
pub fn slapd(site: &Site) -> io::Result<Subject> {
    let people = site.amount(10_000, 200);
    import(site, people)?;
    let add = words(
        site.program("slapadd"),
        &[&"-q", &"-f", &site.path("slapd.conf"), &"-l", &site.path("people")],
    );
    site.empty()()?;
    let stored = site.path("stored");
    fs::create_dir_all(&stored)?;
    let made = Command::new(&add[0]).args(&add[1..]).stdin(Stdio::null()).output()?;
    if !made.status.success() {
        return Err(io::Error::other(format!("slapadd: {}", String::from_utf8_lossy(&made.stderr).trim())));
    }
    fs::rename(site.in_run("data.mdb"), stored.join("data.mdb"))?;
    let empty = site.empty();
    let (kept, data) = (stored.join("data.mdb"), site.in_run("data.mdb"));
    let prepare = move || {
        empty()?;
        fs::copy(&kept, &data).map(drop)
    };

    let asked: String = (0..people).map(|number| format!("user{}\n", number * 7 % people + 1)).collect();
    let asked = site.write("asked", asked)?;
    let mut changes = String::new();
    // Writing to a string cannot fail.
    for number in 1..=people / 4 {
        let _ = writeln!(
            changes,
            "dn: uid=user{},dc=example,dc=org\nchangetype: modify\nreplace: description\ndescription: changed \
             {:0width$}\n",
            number * 2,
            1,
            width = number % 700 + 1
        );
    }
    for number in 1..=people / DELETED {
        let _ = writeln!(changes, "dn: uid=user{},dc=example,dc=org\nchangetype: delete\n", number * DELETED);
    }
    let changes = site.write("changes", changes)?;
    let address = site.in_run("socket").to_string_lossy().replace('/', "%2F");
    let address = format!("ldapi://{address}");
    let search = site.program("ldapsearch");
    let load = format!(
        "set -e\nsearch() {{ {search} -x -LLL -H {address} -b dc=example,dc=org \"$@\"; }}\n\
         for client in 1 2; do\n  search -f {asked} '(uid=%s)' >{run}one$client &\n  \
         search '(sn=Number 1*)' >{run}some$client &\ndone\nwait\n\
         {modify} -x -H {address} -D cn=admin,dc=example,dc=org -w secret -f {changes} >/dev/null\n\
         search '(objectClass=inetOrgPerson)' >{run}all\n",
        search = shell!(search),
        modify = shell!(site.program("ldapmodify")),
        asked = shell!(asked),
        changes = shell!(changes),
        run = shell!(site.in_run("")),
    );
    let files = ["one1", "one2", "some1", "some2", "all"].map(|name| site.in_run(name));
    let product = move |_: &str| {
        let mut prints = Vec::new();
        for (file, wanted) in
            files.iter().zip([Some(people), Some(people), None, None, Some(people - people / DELETED)])
        {
            let content = read(file)?;
            let text = String::from_utf8_lossy(&content);
            let entries = text.split("\n\n").map(str::trim_start);
            let mut entries: Vec<&str> = entries.filter(|entry| entry.starts_with("dn: ")).collect();
            expect("entries", entries.len(), wanted.unwrap_or(entries.len().max(1)))?;
            entries.sort_unstable();
            prints.push(digest(entries.concat().as_bytes()));
        }
        Ok(digest(prints.concat().as_bytes()))
    };
    let server =
        words(site.program("slapd"), &[&"-d", &"0", &"-f", &site.path("slapd.conf"), &"-h", &address]);
    let question =
        words(search, &[&"-x", &"-H", &address, &"-b", &"dc=example,dc=org", &"-s", &"base", &"dn"]);
    site.server(server, Ready::Command(question), &load, Care::new(prepare, product))
}

/// OpenLDAP's import into an empty directory.
pub fn slapadd(site: &Site) -> io::Result<Subject> {
    let people = site.amount(40_000, 4000);
    import(site, people)?;
    let configuration = site.path("slapd.conf");
    let command =
        words(site.program("slapadd"), &[&"-q", &"-f", &configuration, &"-l", &site.path("people")]);
    let cat = words(site.program("slapcat"), &[&"-f", &configuration]);
    let product = move |_: &str| {
        let output = Command::new(&cat[0]).args(&cat[1..]).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("slapcat: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // Numbers and times of an entry's making differ from run to run.
        let lines = text.lines().filter(|line| line.starts_with("dn: ") || line.starts_with("description: "));
        let lines: Vec<&str> = lines.collect();
        expect("entries", lines.iter().filter(|line| line.starts_with("dn: ")).count(), people + ABOVE)?;
        Ok(digest(lines.concat().as_bytes()))
    };
    Ok(site.command(command, product))
}

/// The configuration of slapd, with its database in the run's folder, and the people to import.
fn import(site: &Site, people: usize) -> io::Result<()> {
    let mut configuration = String::new();
    // Writing to a string cannot fail.
    for schema in ["core", "cosine", "inetorgperson"] {
        let _ = writeln!(configuration, "include /etc/ldap/schema/{schema}.schema");
    }
    let run = site.in_run("");
    let _ = write!(
        configuration,
        "pidfile {0}pid\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\nsizelimit unlimited\nthreads 4\ndatabase mdb\n\
         suffix dc=example,dc=org\nrootdn cn=admin,dc=example,dc=org\nrootpw secret\ndirectory {0}\n\
         maxsize 268435456\ndbnosync\nindex objectClass,uid,sn eq\n",
        run.display()
    );
    site.write("slapd.conf", configuration)?;
    let mut entries = String::from("dn: dc=example,dc=org\nobjectClass: domain\ndc: example\n\n");
    for number in 1..=people {
        let _ = write!(
            entries,
            "dn: uid=user{number},dc=example,dc=org\nobjectClass: inetOrgPerson\nuid: user{number}\ncn: User {number}\n\
             sn: Number {}\nmail: user{number}@example.org\ndescription: {:0width$}\n\n",
            number % 100,
            1,
            width = number % 400 + 1
        );
    }
    site.write("people", entries).map(drop)
}

/// Redis with values of three sizes, set, read and deleted.
pub fn redis(site: &Site) -> io::Result<Subject> {
    const SIZES: [usize; 3] = [40, 300, 1500];
    let (requests, keys) = (site.amount(150_000, 1000), site.amount(30_000, 300));
    let socket = site.in_run("socket");
    let server = words(
        site.program("redis-server"),
        &[
            &"--port",
            &"0",
            &"--unixsocket",
            &socket,
            &"--dir",
            &site.in_run(""),
            &"--save",
            &"",
            &"--appendonly",
            &"no",
        ],
    );
    let client = site.program("redis-cli");
    let question = words(client.clone(), &[&"-s", &socket, &"--no-raw", &"ping"]);
    let script = site.write("check.lua", include_str!("scripts/check.lua"))?;
    let mut load = format!(
        "set -e\nbenchmark() {{ {} -s {} -q -P 16 -c 8 -r {keys} \"$@\" >/dev/null; }}\n",
        shell!(site.program("redis-benchmark")),
        shell!(socket)
    );
    for size in SIZES {
        let _ = writeln!(
            load,
            "benchmark -n {} del key:__rand_int__\nbenchmark -n {requests} -d {size} -t set,get",
            requests / 2
        );
    }
    let _ = writeln!(load, "{} -s {} --eval {}", shell!(client), shell!(socket), shell!(script));
    let largest = SIZES[SIZES.len() - 1];
    let product = move |output: &str| {
        let line = super::site::last_line(output)?;
        // Which keys there are is chance; of each size all values are the same.
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [.., "wrong", "0"] if words.contains(&largest.to_string().as_str()) => {
                Ok("no wrong value".into())
            }
            _ => Err(format!("wrong output: {line}")),
        }
    };
    site.server(server, Ready::Command(question), &load, Care::new(site.empty(), product))
}

/// rsyslogd: bursts that one thread takes in and another one writes.
pub fn rsyslog(site: &Site) -> io::Result<Subject> {
    const BURSTS: usize = 4;
    // The messages behind the last burst wake the writer again, which may have missed the last one of it.
    const BEHIND: usize = 20;
    let burst = site.amount(50_000, 1000);
    let (socket, out) = (site.in_run("socket"), site.in_run("out"));
    let configuration = include_str!("scripts/rsyslog.conf")
        .replace("RUN", &site.path("run").to_string_lossy())
        .replace("ROOM", &(burst * 3 / 2).to_string())
        .replace("BURST", &burst.to_string());
    let configuration = site.write("rsyslog.conf", configuration)?;
    let messages: String = (1..=burst * BURSTS + burst / BEHIND)
        .map(|number| {
            let words: String =
                (0..number % 17).map(|word| format!(" word{}", number * word % 1000)).collect();
            format!("{number} a line{words}\n")
        })
        .collect();
    let lines = burst * BURSTS;
    let messages = site.write("messages", messages)?;
    let load = format!(
        "set -e\n{logger} -u {socket} -t app -f {messages}\n\
         until [ \"$(wc -l <{out})\" -ge {lines} ]; do sleep 0.02; done\n",
        logger = shell!(site.program("logger")),
        socket = shell!(socket),
        messages = shell!(messages),
        out = shell!(out),
    );
    let server =
        words(site.program("rsyslogd"), &[&"-n", &"-f", &configuration, &"-i", &site.in_run("pid"), &"-C"]);
    let product = move |_: &str| {
        let content = read(&out)?;
        let text = String::from_utf8_lossy(&content);
        let numbers = text.lines().map_while(|line| line.split(' ').next()?.parse::<usize>().ok());
        expect(
            "lines in order",
            numbers.zip(1..).take(lines).take_while(|(found, wanted)| found == wanted).count(),
            lines,
        )?;
        let complete: Vec<&str> = text.lines().take(lines).collect();
        Ok(digest(complete.concat().as_bytes()))
    };
    let question = words("/bin/sh".into(), &[&"-c", &"test -S \"$0\"", &socket]);
    site.server(server, Ready::Command(question), &load, Care::new(site.empty(), product))
}

/// MariaDB: clients that come and go add, change, search and delete the orders of a shop each.
pub fn mariadb(site: &Site) -> io::Result<Subject> {
    const SHOPS: usize = 4;
    const CONNECTIONS: usize = 4;
    // A server's default buffers would hide what its threads ask malloc for.
    const SETTINGS: [&str; 3] =
        ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=4M", "--innodb-flush-log-at-trx-commit=0"];
    let amount = site.amount(2000, 20);
    let (socket, data) = (site.in_run("socket"), site.in_run("data"));
    let mut folder = OsString::from("--datadir=");
    folder.push(&data);
    let mut common = vec![OsString::from("--no-defaults"), folder];
    if rustix::process::geteuid().is_root() {
        common.push("--user=root".into());
    }
    common.extend(SETTINGS.map(OsString::from));

    let mut install = words(site.program("mariadb-install-db"), &[]);
    install.extend(common.iter().cloned());
    install.extend(["--auth-root-authentication-method=normal", "--skip-test-db"].map(OsString::from));
    let empty = site.empty();
    let prepare = move || {
        empty()?;
        let made = Command::new(&install[0]).args(&install[1..]).stdin(Stdio::null()).output()?;
        if made.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&made.stderr);
        Err(io::Error::other(format!("mariadb-install-db: {}", reason.trim())))
    };

    let mut server = words(site.program("mariadbd"), &[]);
    server.extend(common);
    server.extend(words("--skip-networking".into(), &[&"--socket", &socket]));
    let client = site.program("mariadb");
    let question =
        words(client.clone(), &[&"--no-defaults", &"--user=root", &"--socket", &socket, &"-e", &"DO 1"]);
    let script = site.write("orders.sql", include_str!("scripts/orders.sql"))?;
    let outputs: Vec<_> = (1..=SHOPS).map(|shop| site.in_run(&format!("shop{shop}"))).collect();
    let mut load = format!(
        "set -e\nask() {{ {} --no-defaults --user=root --socket {} --batch \"$@\"; }}\nask <{}\n\
         shop() {{\n  for connection in $(seq 0 {}); do\n    \
         ask orders -e \"CALL serve($1, $((connection * {amount})), {amount})\"\n  done\n}}\n",
        shell!(client),
        shell!(socket),
        shell!(script),
        CONNECTIONS - 1,
    );
    // Writing to a string cannot fail.
    for (shop, output) in (1..).zip(&outputs) {
        let _ = writeln!(load, "shop {shop} >{} &", shell!(output));
    }
    let _ = writeln!(load, "wait\nask --skip-column-names orders -e 'CALL tell()'");
    let product = move |output: &str| {
        let told = super::site::last_line(output)?;
        let left = told.split('\t').next().and_then(|count| count.parse().ok()).unwrap_or(0);
        let orders = SHOPS * CONNECTIONS * amount;
        expect("orders", left, orders - orders / REMOVED)?;
        let mut answers = told.into_bytes();
        for output in &outputs {
            answers.extend(read(output)?);
        }
        Ok(digest(&answers))
    };
    site.server(server, Ready::Command(question), &load, Care::new(prepare, product))
}
