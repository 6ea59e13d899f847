/* A stand-in for libnvidia-ml.so.1. What it says comes from the text file that FAKE_NVML names,
 * read at each call, so that a test may change it at any time. One fact a line; parts and processes
 * name their GPU by its index:
 *
 *   driver VERSION
 *   gpu UUID MINOR BUSID TOTAL_MIB RESERVED_MIB NAME
 *   mig GPU UUID GI CI TOTAL_MIB NAME          a part; the GPU is divided from then on
 *   proc GPU PID USED_MIB KIND [GI CI]         KIND: compute, graphics, mps; USED_MIB -1: not known
 *   sample GPU PID TIME_US SM
 *   rate GPU PERCENT
 *   event NUMBER GPU XID                       delivered once to each event set; GPU -1: of none
 *   fail FUNCTION CODE [GPU]                   also of the parts of that GPU
 *   hang FUNCTION                              until the line is gone
 *
 * Names stand without blanks; an underscore is shown as one.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { OK, UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10 };
enum { MOST = 256, TEXT = 96, PARTS = 16 };

typedef struct { char uuid[TEXT], bus[32], name[TEXT]; int minor; long long total, reserved; int rate; } gpu_t;
typedef struct { int gpu; char uuid[TEXT], name[TEXT]; unsigned gi, ci; long long total; } mig_t;
typedef struct { int gpu; unsigned pid, gi, ci; long long used; char kind[16]; } proc_t;
typedef struct { int gpu; unsigned pid, sm; unsigned long long time; } sample_t;
typedef struct { int number, gpu; unsigned xid; } event_t;
typedef struct { char function[TEXT]; int code, gpu, hang; } fault_t;
typedef struct {
  gpu_t gpu[MOST]; mig_t mig[MOST]; proc_t proc[MOST]; sample_t sample[MOST]; event_t event[MOST];
  fault_t fault[MOST]; int gpus, migs, procs, samples, events, faults; char driver[TEXT];
} world_t;
typedef struct { int delivered, registered[MOST]; } set_t;

typedef void *dev_t_; /* of a GPU: its index + 1; of a part: that of the line + 1 + MOST */
static _Thread_local world_t w;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int sessions;

static char *shown(char *name) { for (char *c = name; *c; c++) if (*c == '_') *c = ' '; return name; }

static void load(void) {
#ifdef READ_ONCE /* in benches, where the stand-in itself should cost nothing */
  static _Thread_local int loaded;
  if (loaded++) return;
#endif
  memset(&w, 0, sizeof w);
  strcpy(w.driver, "550.54.15");
  char *path = getenv("FAKE_NVML"), l[512];
  FILE *f = path ? fopen(path, "r") : NULL;
  if (!f) return;
  while (fgets(l, sizeof l, f)) {
    gpu_t *g = w.gpu + w.gpus; mig_t *m = w.mig + w.migs; proc_t *p = w.proc + w.procs;
    sample_t *s = w.sample + w.samples; event_t *e = w.event + w.events; fault_t *x = w.fault + w.faults;
    int index, percent;
    p->gi = p->ci = ~0u; x->gpu = -1; x->hang = x->code = 0;
    if (sscanf(l, "gpu %95s %d %31s %lld %lld %95s", g->uuid, &g->minor, g->bus, &g->total, &g->reserved, g->name) == 6) {
      shown(g->name); g->rate = -1; w.gpus++;
    } else if (sscanf(l, "mig %d %95s %u %u %lld %95s", &m->gpu, m->uuid, &m->gi, &m->ci, &m->total, m->name) == 6) {
      shown(m->name); w.migs++;
    } else if (sscanf(l, "proc %d %u %lld %15s %u %u", &p->gpu, &p->pid, &p->used, p->kind, &p->gi, &p->ci) >= 4) w.procs++;
    else if (sscanf(l, "sample %d %u %llu %u", &s->gpu, &s->pid, &s->time, &s->sm) == 4) w.samples++;
    else if (sscanf(l, "rate %d %d", &index, &percent) == 2) w.gpu[index].rate = percent;
    else if (sscanf(l, "event %d %d %u", &e->number, &e->gpu, &e->xid) == 3) w.events++;
    else if (sscanf(l, "fail %95s %d %d", x->function, &x->code, &x->gpu) >= 2) w.faults++;
    else if (sscanf(l, "hang %95s", x->function) == 1) { x->hang = 1; w.faults++; }
    else sscanf(l, "driver %95s", w.driver);
  }
  fclose(f);
}

static void rest_ms(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

static int gpu_of(dev_t_ d) {
  long h = (long)d - 1;
  return h >= MOST ? (h - MOST < w.migs ? w.mig[h - MOST].gpu : -1) : h < w.gpus ? (int)h : -1;
}
static mig_t *mig_of(dev_t_ d) { long h = (long)d - 1 - MOST; return h >= 0 && h < w.migs ? w.mig + h : NULL; }

/* What every function begins with. d: NULL where it is about no device. */
static int begin(const char *function, dev_t_ d) {
again:
  load();
  for (int i = 0; i < w.faults; i++) {
    fault_t *x = w.fault + i;
    if (strcmp(x->function, function)) continue;
    if (x->hang) { rest_ms(5); goto again; }
    if (x->gpu < 0 || (d && x->gpu == gpu_of(d))) return x->code;
  }
  if (!strstr(function, "Init") && sessions <= 0) return UNINITIALIZED;
  return d && gpu_of(d) < 0 ? INVALID : OK;
}
#define BEGIN(d) do { int r = begin(__func__, d); if (r) return r; } while (0)
#define COPY(to, room, from) do { if (strlen(from) >= (room)) return TOO_SMALL; strcpy(to, from); } while (0)

int nvmlInitWithFlags(unsigned flags) { (void)flags; BEGIN(NULL); pthread_mutex_lock(&lock); sessions++; pthread_mutex_unlock(&lock); return OK; }
int nvmlInit_v2(void) { BEGIN(NULL); return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { BEGIN(NULL); pthread_mutex_lock(&lock); sessions--; pthread_mutex_unlock(&lock); return OK; }
int fakeSessions(void) { return sessions; }
const char *nvmlErrorString(int code) {
  switch (code) {
  case 3: return "Not Supported"; case 4: return "Insufficient Permissions"; case 6: return "Not Found";
  case 9: return "Driver Not Loaded"; case 10: return "Timeout"; case 15: return "GPU is lost";
  case 18: return "Driver/library version mismatch"; default: return "Unknown Error";
  }
}
int nvmlSystemGetDriverVersion(char *s, unsigned n) { BEGIN(NULL); COPY(s, n, w.driver); return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { BEGIN(NULL); *n = w.gpus; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, dev_t_ *d) { dev_t_ h = (dev_t_)(long)(i + 1); BEGIN(h); *d = h; return OK; }
int nvmlDeviceGetUUID(dev_t_ d, char *s, unsigned n) { BEGIN(d); mig_t *m = mig_of(d); COPY(s, n, m ? m->uuid : w.gpu[gpu_of(d)].uuid); return OK; }
int nvmlDeviceGetName(dev_t_ d, char *s, unsigned n) { BEGIN(d); mig_t *m = mig_of(d); COPY(s, n, m ? m->name : w.gpu[gpu_of(d)].name); return OK; }
int nvmlDeviceGetMinorNumber(dev_t_ d, unsigned *n) { BEGIN(d); *n = w.gpu[gpu_of(d)].minor; return OK; }

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; };
int nvmlDeviceGetPciInfo_v3(dev_t_ d, struct pci *p) {
  BEGIN(d);
  memset(p, 0, sizeof *p);
  if (sscanf(w.gpu[gpu_of(d)].bus, "%x:%x:%x", &p->domain, &p->bus, &p->device) != 3) return INVALID;
  snprintf(p->text, sizeof p->text, "%08X:%02X:%02X.0", p->domain, p->bus, p->device);
  return OK;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, dev_t_ *d) {
  BEGIN(NULL);
  for (int i = 0; i < w.gpus; i++) if (!strcasecmp(w.gpu[i].bus, bus)) { *d = (dev_t_)(long)(i + 1); return OK; }
  return NOT_FOUND;
}

struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(dev_t_ d, struct memory *m) {
  BEGIN(d);
  mig_t *part = mig_of(d); int g = gpu_of(d); long long used = part ? 0 : w.gpu[g].reserved;
  for (int i = 0; i < w.procs; i++) {
    proc_t *p = w.proc + i;
    if (p->gpu == g && p->used > 0 && (!part || (p->gi == part->gi && p->ci == part->ci))) used += p->used;
  }
  m->total = (part ? part->total : w.gpu[g].total) << 20; m->used = used << 20; m->free = m->total - m->used;
  return OK;
}
struct rates { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(dev_t_ d, struct rates *r) {
  BEGIN(d);
  int rate = w.gpu[gpu_of(d)].rate;
  if (rate < 0 || mig_of(d)) return NOT_SUPPORTED;
  r->gpu = rate; r->memory = 0; return OK;
}

struct process { unsigned pid; unsigned long long used; unsigned gi, ci; };
static int running(dev_t_ d, const char *kind, unsigned *n, struct process *out) {
  unsigned room = out ? *n : 0, k = 0; mig_t *part = mig_of(d);
  for (int i = 0; i < w.procs; i++) {
    proc_t *p = w.proc + i;
    if (p->gpu != gpu_of(d) || strcmp(p->kind, kind) || (part && (p->gi != part->gi || p->ci != part->ci))) continue;
    if (k < room) out[k] = (struct process){p->pid, p->used < 0 ? ~0ull : (unsigned long long)p->used << 20, p->gi, p->ci};
    k++;
  }
  *n = k;
  return k > room ? TOO_SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(dev_t_ d, unsigned *n, struct process *out) { BEGIN(d); return running(d, "compute", n, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(dev_t_ d, unsigned *n, struct process *out) { BEGIN(d); return running(d, "graphics", n, out); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(dev_t_ d, unsigned *n, struct process *out) { BEGIN(d); return running(d, "mps", n, out); }

struct utilization { unsigned pid; unsigned long long time; unsigned sm, memory, encoder, decoder; };
int nvmlDeviceGetProcessUtilization(dev_t_ d, struct utilization *out, unsigned *n, unsigned long long since) {
  BEGIN(d);
  for (int i = 0; i < w.migs; i++) if (w.mig[i].gpu == gpu_of(d)) return NOT_SUPPORTED;
  unsigned room = out ? *n : 0, k = 0;
  for (int i = 0; i < w.samples; i++) {
    sample_t *s = w.sample + i;
    if (s->gpu != gpu_of(d) || s->time <= since) continue;
    if (k < room) out[k] = (struct utilization){s->pid, s->time, s->sm, 0, 0, 0};
    k++;
  }
  *n = k ? k : 1; /* the driver asks for some room although there is nothing */
  return !out ? TOO_SMALL : !k ? NOT_FOUND : k > room ? TOO_SMALL : OK;
}

int nvmlDeviceGetMigMode(dev_t_ d, unsigned *current, unsigned *pending) {
  BEGIN(d);
  *current = *pending = 0;
  for (int i = 0; i < w.migs; i++) if (w.mig[i].gpu == gpu_of(d)) *current = *pending = 1;
  return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(dev_t_ d, unsigned *n) { BEGIN(d); *n = PARTS; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(dev_t_ d, unsigned index, dev_t_ *part) {
  BEGIN(d);
  unsigned k = 0; /* every second number is a gap */
  for (int i = 0; i < w.migs; i++)
    if (w.mig[i].gpu == gpu_of(d) && 2 * k++ == index) { *part = (dev_t_)(long)(i + 1 + MOST); return OK; }
  return NOT_FOUND;
}
int nvmlDeviceGetGpuInstanceId(dev_t_ d, unsigned *n) { BEGIN(d); if (!mig_of(d)) return INVALID; *n = mig_of(d)->gi; return OK; }
int nvmlDeviceGetComputeInstanceId(dev_t_ d, unsigned *n) { BEGIN(d); if (!mig_of(d)) return INVALID; *n = mig_of(d)->ci; return OK; }

int nvmlEventSetCreate(set_t **set) { BEGIN(NULL); *set = calloc(1, sizeof **set); return OK; }
int nvmlEventSetFree(set_t *set) { BEGIN(NULL); free(set); return OK; }
int nvmlDeviceRegisterEvents(dev_t_ d, unsigned long long types, set_t *set) { BEGIN(d); if (!types) return INVALID; set->registered[gpu_of(d)] = 1; return OK; }
struct event { dev_t_ device; unsigned long long type, data; unsigned gi, ci; };
int nvmlEventSetWait_v2(set_t *set, struct event *out, unsigned timeout_ms) {
  for (unsigned waited = 0;; waited += 10) {
    BEGIN(NULL);
    for (int i = 0; i < w.events; i++) {
      event_t *e = w.event + i;
      if (e->number <= set->delivered || (e->gpu >= 0 && !set->registered[e->gpu])) continue;
      set->delivered = e->number;
      *out = (struct event){(dev_t_)(long)(e->gpu + 1), 8, e->xid, ~0u, ~0u};
      return OK;
    }
    if (waited >= timeout_ms) return TIMEOUT;
    rest_ms(10);
  }
}
